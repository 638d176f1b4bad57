"""Folders of earlier versions, with one file for each client and round, are read by today's store."""

import pytest
import torch

from fedblade.core.disk_store import DiskStore
from fedblade.core.errors import CorruptFile
from fedblade.core.old_states import convert_old_states
from fedblade.core.state import flatten
from fedblade.core.tensorfile import write_tensors

SAVED = [(0, 0), (17, 0), (17, 12), (1042, 3)]


def state(client, round_):
    return {"control": {"w": torch.full((3,), float(1000 * round_ + client))}}


@pytest.fixture
def folder(tmp_path):
    """The layout of earlier versions: clients by thousands, a folder for each, a file for each round."""
    for client, round_ in SAVED:
        path = tmp_path / "clients" / f"{client // 1000:04d}" / f"{client}" / f"{round_:06d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, flatten(state(client, round_)))
    return tmp_path / "clients"


def check_states(store):
    for client, round_ in SAVED:
        assert torch.equal(store.get(client, round_ + 1)["control"]["w"], state(client, round_)["control"]["w"])
    assert store.get(17, 0) is None
    assert store.get(18, 99) is None


def test_old_files_become_one_file(folder):
    (folder / "0000" / "17" / ".000013.safetensors.ab12.tmp").write_bytes(b"half")
    check_states(DiskStore(folder))
    assert [path.name for path in folder.iterdir()] == ["000000-old-0.states"]
    check_states(DiskStore(folder))


def test_a_conversion_that_was_killed_goes_on(folder):
    """Killed while writing, and killed while removing."""
    (folder / "000000-old-0.states.tmp").write_bytes(b"half")
    convert_old_states(folder)
    path = folder / "0000" / "17" / "000012.safetensors"
    path.parent.mkdir(parents=True)
    write_tensors(path, flatten(state(17, 12)))
    check_states(DiskStore(folder))
    assert [path.name for path in folder.iterdir()] == ["000000-old-0.states"]


def test_a_foreign_file_stays(folder):
    stray = folder / "0000" / "17" / "000012 (copy).safetensors"
    stray.write_text("mine")
    (folder / "0000" / "notes").mkdir()
    check_states(DiskStore(folder))
    assert stray.read_text() == "mine"


def test_a_damaged_old_file_is_named_and_nothing_is_removed(folder):
    path = folder / "0000" / "17" / "000012.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match=r"the state of client 17 is lost: .*000012"):
        DiskStore(folder).get(0, 1)
    assert len(list(folder.rglob("*.safetensors"))) == len(SAVED)
    assert not list(folder.glob("*.states*"))
