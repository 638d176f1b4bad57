"""Where a node keeps the states of its clients: the owner's alone, and not for ever."""

import os

import pytest
import torch

from fedblade.core.errors import RunFailed
from fedblade.flower._client_states import UsedStates, make_run_folder

FACTS = {"used": None, "round": 0}
STATE = {"own": {"weight": torch.ones(2)}}


def test_states_are_the_owners_alone(tmp_path):
    folder = tmp_path / "node" / "state" / ("a" * 16)
    umask = os.umask(0o002)
    try:
        UsedStates(folder, 3, FACTS).put(3, 0, STATE)
    finally:
        os.umask(umask)
    assert [each.stat().st_mode & 0o777 for each in (folder.parent, folder)] == [0o700, 0o700]
    assert list(folder.rglob("*.safetensors"))


def test_reading_makes_no_folder(tmp_path):
    """A method that keeps nothing needs no place."""
    assert UsedStates(tmp_path / ("a" * 16), 3, FACTS).get(3, 0) is None
    assert list(tmp_path.iterdir()) == []


def test_runs_that_were_not_heard_of_for_longest_are_forgotten(tmp_path):
    names = [f"{number:016x}" for number in range(17)]
    (tmp_path / "notes of mine").mkdir()
    for age, name in enumerate(reversed(names[:16])):
        make_run_folder(tmp_path / name)
        UsedStates(tmp_path / name, 3, FACTS).put(3, 0, STATE)
        os.utime(tmp_path / name, (10**9 - age, 10**9 - age))
    # The oldest goes on, so that it is another that has to go.
    UsedStates(tmp_path / names[0], 3, FACTS).put(3, 0, STATE)
    assert len(list(tmp_path.iterdir())) == 17
    make_run_folder(tmp_path / names[16])
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], *names[2:], "notes of mine"]


def test_a_place_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match=r"cannot write '.*file/"):
        make_run_folder(tmp_path / "file" / ("a" * 16))
