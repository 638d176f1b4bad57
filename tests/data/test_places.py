"""Where data are looked for, in which order, and what is said when they are nowhere."""

import json
import shutil
import sys
import types

import pytest

from fedblade.core.errors import Misconfigured, MissingExtra
from fedblade.data import allow_downloads
from fedblade.data._digest import hash_file
from fedblade.data.cifar import cifar10
from fedblade.data.domains import office_caltech10
from support.made_files import save_cifar10_binary


def test_path_goes_before_the_variable_and_the_variable_before_the_cache(tmp_path, cache, monkeypatch):
    for folder, count in ((tmp_path / "given", 1), (tmp_path / "data" / "cifar10", 2), (cache / "cifar10", 3)):
        save_cifar10_binary(folder, count)
    assert len(cifar10().test) == 3
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path / "data"))
    assert len(cifar10().test) == 2
    assert len(cifar10(str(tmp_path / "given")).test) == 1
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path / "given"))
    assert len(cifar10().test) == 3


def test_an_empty_folder_hides_no_other_place(tmp_path, cache, monkeypatch):
    (tmp_path / "cifar10").mkdir()
    save_cifar10_binary(cache / "cifar10", 3)
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    assert len(cifar10().test) == 3


def test_without_xdg_the_cache_is_below_home(tmp_path, monkeypatch):
    from fedblade.data import cache_root

    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_root() == tmp_path / ".cache" / "fedblade"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "fedblade"


def test_a_decoded_copy_outlives_its_files(tmp_path, cache):
    save_cifar10_binary(cache / "cifar10")
    first = cifar10()
    shutil.rmtree(cache / "cifar10")
    assert cifar10().fingerprint == first.fingerprint
    save_cifar10_binary(cache / "cifar10", count=2)
    cifar10()
    shutil.rmtree(cache / "cifar10")
    with pytest.raises(Misconfigured, match=r"decoded from 2 different sources.*FEDBLADE_DATA or dataset.path"):
        cifar10()


def test_a_copy_of_an_explicit_path_never_becomes_the_data_set(tmp_path, cache):
    save_cifar10_binary(tmp_path / "toy")
    toy = cifar10(str(tmp_path / "toy"))
    with pytest.raises(Misconfigured, match=r"'cifar10' is not on this machine"):
        cifar10()
    # The same content in a usual place is the data set, and its copy stays so whatever path is given later.
    shutil.copytree(tmp_path / "toy", cache / "cifar10")
    assert cifar10().fingerprint == toy.fingerprint
    shutil.rmtree(cache / "cifar10")
    cifar10(str(tmp_path / "toy"))
    assert cifar10().fingerprint == toy.fingerprint


def test_a_copy_that_does_not_say_where_it_came_from_is_not_trusted(tmp_path, cache):
    save_cifar10_binary(cache / "cifar10")
    cifar10()
    shutil.rmtree(cache / "cifar10")
    (meta,) = cache.glob("decoded/cifar10-*/meta.json")
    facts = json.loads(meta.read_text())
    assert facts.pop("requests") == [""]
    meta.write_text(json.dumps(facts))
    with pytest.raises(Misconfigured, match=r"'cifar10' is not on this machine"):
        cifar10()


def test_a_damaged_copy_without_files_is_an_error(tmp_path, cache):
    save_cifar10_binary(cache / "cifar10")
    cifar10()
    shutil.rmtree(cache / "cifar10")
    (copy,) = cache.glob("decoded/cifar10-*")
    (copy / "test-inputs.bin").write_bytes(b"")
    with pytest.raises(Misconfigured, match=r"damaged .* and its files are gone. Remove"):
        cifar10()


def test_missing_data_are_explained_in_one_line(tmp_path, cache, monkeypatch):
    with pytest.raises(Misconfigured) as caught:
        cifar10()
    message = str(caught.value)
    assert "\n" not in message
    for words in (
        "dataset 'cifar10' is not on this machine",
        "cifar-10-binary.tar.gz",
        str(cache / "cifar10"),
        "FEDBLADE_DATA is not set",
        "fedblade data cifar10 --download",
    ):
        assert words in message
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    with pytest.raises(Misconfigured) as caught:
        office_caltech10()
    assert str(tmp_path / "office_caltech10") in str(caught.value)
    assert "--download" not in str(caught.value)
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(Misconfigured, match=r"FEDBLADE_DATA is '.*nowhere', which is not a folder"):
        cifar10()


class FakeHub(types.ModuleType):
    """A hub with the calls that are used; `damage` changes the bytes on the way."""

    def __init__(self, files, damage=False, fails=False):
        super().__init__("huggingface_hub")
        self.files, self.damage, self.fails, self.fetched = files, damage, fails, []

    def HfApi(self):
        return self

    def dataset_info(self, repository, *, files_metadata):
        assert (repository, files_metadata) == ("uoft-cs/cifar10", True)
        if self.fails:
            raise ConnectionError("no route\nto host")
        siblings = [
            types.SimpleNamespace(rfilename=name, lfs=types.SimpleNamespace(sha256=hash_file(path)))
            for name, path in self.files.items()
        ]
        return types.SimpleNamespace(sha="abc", siblings=[*siblings, types.SimpleNamespace(rfilename="README.md")])

    def hf_hub_download(self, repository, name, *, repo_type, revision, local_dir):
        assert (repo_type, revision) == ("dataset", "abc")
        self.fetched.append(name)
        (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
        data = self.files[name].read_bytes()
        (local_dir / name).write_bytes(data[:-1] if self.damage else data)


@pytest.fixture
def tables(tmp_path):
    from support.made_files import pixels, save_table

    made = {}
    for part in ("train", "test"):
        path = tmp_path / "remote" / f"{part}.parquet"
        save_table(path, pixels(3, 32), [0, 1, 2])
        made[f"plain_text/{part}-00000-of-00001.parquet"] = path
    return made


def test_nothing_is_downloaded_without_permission(tables, monkeypatch):
    hub = FakeHub(tables)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(Misconfigured, match="--download"):
        cifar10()
    assert hub.fetched == []
    with allow_downloads():
        assert len(cifar10().train) == 3
    assert sorted(hub.fetched) == sorted(tables)
    assert len(cifar10().train) == 3


def test_a_damaged_download_is_refused_and_removed(tables, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(tables, damage=True))
    with allow_downloads(), pytest.raises(Misconfigured, match=r"arrived damaged: its SHA-256"):
        cifar10()
    assert not (cache / "cifar10").exists()
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(tables))
    with allow_downloads():
        assert len(cifar10().train) == 3


def test_failed_downloads_are_explained(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(tables, fails=True))
    with allow_downloads(), pytest.raises(Misconfigured, match=r"uoft-cs/cifar10 failed: ConnectionError: no route\. "):
        cifar10()
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub({}))
    with allow_downloads(), pytest.raises(Misconfigured, match=r"no longer has files like plain_text"):
        cifar10()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with allow_downloads(), pytest.raises(MissingExtra, match=r"fedblade\[data\]"):
        cifar10()
