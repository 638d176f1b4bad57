"""A run that goes back to a round: a new folder beside the old one, which goes on to the same result."""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest

import fedblade
from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.results import RunDirectory
from fedblade.runs import RunListener

OFTEN = {"rounds": 6, "clients_per_round": 3, "checkpoint.every": 2, "checkpoint.keep": 3}


class Notes(RunListener):
    """Collects notes, and stops the run after a round."""

    def __init__(self, last=None):
        self.last, self.notes = last, []

    def on_round(self, record):
        if record["round"] == self.last:
            raise KeyboardInterrupt

    def on_note(self, text):
        self.notes.append(text)


FALLING = """
from dataclasses import replace

from fedblade.methods.fedavg import fedavg

def falling():
    def server(state, sums):
        moved = fedavg().server(state, sums)
        gone = {name: 0 * leaf for name, leaf in moved.params.items()}
        return moved if state.round < 3 else moved.replace(params=gone)

    return replace(fedavg(), server=server)
"""


@pytest.fixture
def falling(tmp_path_factory):
    """A reference to a method that gets worse in round 4."""
    path = tmp_path_factory.mktemp("methods") / "falling.py"
    path.write_text(FALLING)
    return f"{path}:falling"


@pytest.fixture
def finished(job, methods_of_mine, tmp_path):
    """A finished run of six rounds with checkpoints of the rounds 2, 4 and 6, and states of clients."""
    mine = job(**OFTEN, method=methods_of_mine["scaffold"], momentum=0.0)
    mine.run(tmp_path / "run")
    return mine, tmp_path / "run"


def contents(folder):
    """Every file of a folder with its digest and the time of its last change."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def read(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("round_", [2, 4])
def test_going_on_from_an_earlier_round_gives_the_undisturbed_result(finished, undisturbed, outcome_of, round_):
    mine, folder = finished
    before, heard = contents(folder), Notes()
    result = mine.run(folder, resume=True, from_round=round_, listener=heard)
    assert result.path == folder.with_name(f"run-from-{round_}")
    assert outcome_of(result.path) == undisturbed(mine)
    assert contents(folder) == before
    origin = {"folder": str(folder.resolve()), "round": round_}
    assert read(result.path / "folder.json")["origin"] == result.summary["origin"] == origin
    assert any(f"goes on from round {round_} of" in note for note in heard.notes)
    assert "origin" not in read(folder / "summary.json")


def test_the_history_up_to_the_round_is_that_of_the_run(finished):
    mine, folder = finished
    with pytest.raises(KeyboardInterrupt):
        mine.run(folder, resume=True, from_round=4, listener=Notes(5))
    lines, copied = (
        (place / "history.jsonl").read_text().splitlines() for place in (folder, folder.with_name("run-from-4"))
    )
    assert len(copied) == 5
    assert copied[:4] == lines[:4]


def test_a_run_that_went_back_is_a_run_like_every_other(finished, undisturbed, outcome_of):
    """It is stopped, goes on, and goes back again; every time into a folder of its own."""
    mine, folder = finished
    with pytest.raises(KeyboardInterrupt):
        mine.run(folder, resume=True, from_round=2, listener=Notes(5))
    first = folder.with_name("run-from-2")
    again = mine.run(first, resume=True, from_round=4)
    assert again.path == folder.with_name("run-from-2-from-4")
    assert again.summary["origin"] == {"folder": str(first.resolve()), "round": 4}
    assert mine.run(first, resume=True).path == first
    assert mine.run(folder, resume=True, from_round=2).path == folder.with_name("run-from-2-2")
    for place in folder.parent.glob("run-from-*"):
        assert outcome_of(place) == undisturbed(mine), place


def test_the_rounds_to_choose_from_are_named(finished, tmp_path):
    mine, folder = finished
    for round_ in (1, 5, 9):
        with pytest.raises(
            Misconfigured, match=rf"cannot go back to round {round_}: .*keep.* choose from: 2, 4 and 6\."
        ):
            mine.run(folder, resume=True, from_round=round_)
    with pytest.raises(Misconfigured, match="no run with checkpoints"):
        mine.run(tmp_path / "nothing", resume=True, from_round=2)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("options", [{}, {"restart": True}, {"resume": True, "restart": True}])
def test_going_back_is_a_way_of_going_on(finished, options):
    mine, folder = finished
    with pytest.raises(Misconfigured, match="--from-round goes on with a run from an earlier round"):
        mine.run(folder, from_round=2, **options)


def test_settings_change_as_when_a_run_goes_on(finished, tmp_path):
    """Fewer rounds than the run has done are allowed, because the new run has not done them."""
    _, folder = finished
    with pytest.raises(Misconfigured, match="may not change"):
        fedblade.run(out=folder, resume=True, from_round=2, **{"optimizer.lr": 0.5})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    result = fedblade.run(out=folder, resume=True, from_round=2, rounds=3)
    assert result.summary["rounds"] == 3
    change = {"round": 2, "key": "federation.rounds", "before": 6, "now": 3}
    assert result.summary["changes"] == [change]


def test_a_change_of_a_later_round_counts_from_the_round_that_the_run_goes_on_from(finished):
    _, folder = finished
    fedblade.run(out=folder, resume=True, rounds=8)
    assert [change["round"] for change in read(folder / "folder.json")["changes"]] == [6]
    result = fedblade.run(out=folder, resume=True, from_round=4)
    assert [change["round"] for change in result.summary["changes"]] == [4]


@pytest.mark.parametrize("what", ["checkpoint", "states"])
def test_what_is_damaged_is_not_gone_back_to(finished, tmp_path, what):
    mine, folder = finished
    path = folder / "checkpoints" / "round-000002.safetensors"
    if what == "states":
        path = min((folder / "checkpoints" / "clients").glob("*.states"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=path.name):
        mine.run(folder, resume=True, from_round=2)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_without_its_record_is_mended_first(finished):
    mine, folder = finished
    (folder / "folder.json").unlink()
    with pytest.raises(Misconfigured, match=r"folder\.json.* is gone.* without --from-round"):
        mine.run(folder, resume=True, from_round=2)


def test_the_best_model_of_a_later_round_is_not_taken_along(job, tmp_path):
    """The run that goes on may never find it again, for example without a client that was left out since."""
    mine, folder = job(**OFTEN, protocol="gapa", test_split="matched"), tmp_path / "run"
    mine.run(folder)
    best = max(range(6), key=lambda row: fedblade.run(out=folder, resume=True).history[row]["test_accuracy"]) + 1
    assert best > 2, "the example shows nothing"
    with pytest.raises(Misconfigured, match=rf"best model that it keeps is of round {best}"):
        mine.run(folder, resume=True, from_round=2)


def test_the_best_model_of_an_earlier_round_is_taken_along(job, undisturbed, outcome_of, tmp_path, falling):
    mine, folder = job(**OFTEN, protocol="gapa", test_split="matched", method=falling), tmp_path / "run"
    mine.run(folder)
    assert outcome_of(mine.run(folder, resume=True, from_round=4).path) == undisturbed(mine)


def test_a_checkpoint_of_an_earlier_version_takes_all_states_along(finished, undisturbed, outcome_of):
    """It does not say which files it needs."""
    mine, folder = finished
    path, directory = folder / "checkpoints" / "round-000004.safetensors", RunDirectory(folder)
    tensors, facts = read_tensors(path)
    write_tensors(path, tensors, {key: facts[key] for key in facts.keys() - {"states", "run"}})
    directory.write("folder.json", replace(directory.record, unmarked=4).as_json())
    assert outcome_of(mine.run(folder, resume=True, from_round=4).path) == undisturbed(mine)


def test_the_place_is_found_for_every_way_to_name_the_folder(finished, tmp_path, monkeypatch):
    mine, folder = finished
    monkeypatch.chdir(folder)
    assert mine.run(".", resume=True, from_round=4).path.resolve() == tmp_path / "run-from-4"
    shutil.rmtree(tmp_path / "run-from-4")
    monkeypatch.chdir(tmp_path)
    assert str(mine.run("run/", resume=True, from_round=4).path) == "run-from-4"
