"""Run folders of an earlier version are read, reported, resumed or refused as they were on the day they were made.

`make.py` says how the folders came about. A folder that uses a part whose revision was raised since is refused, and the
tests then ask for the refusal alone.
"""

import json
from contextlib import nullcontext

import pytest
import tomli_w
import torch

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.report import build_report
from fedblade.results import RunDirectory, comparison_rows, read_runs
from fedblade.runs import RunListener
from fedblade.studies import PlannedRun, run_planned
from fedblade.watch._folder import WatchedFolder
from support.stored_folders import FOLDERS, own_module
from support.stored_runs import config_of, contents, facts_of, given, go_on, outdated, refusal, refused, runs_below

EXACT = ("round", "clients", "lr")
TWO_SAMPLES = 0.5
"""Percent of the 450 test samples that lie on a boundary and may fall to either side on another machine."""
LATER = {"local": ["steps"], "partition": ["seed"], "model": ["output", "init"]}
"""Settings that came last: older folders lack them."""
JOURNAL = ("deployment.json", "deployment.jsonl")
DONE = ("finished", 4, ["model.safetensors"])
HELD = {
    "finished": DONE,
    **dict.fromkeys(("fedavg-seed1", "fedavg-seed2", "fedetf-seed1", "fedetf-seed2"), DONE),
    "interrupted": ("interrupted", 2, []),
    "personal": ("interrupted", 2, ["checkpoints/clients"]),
    "measuring": ("interrupted", 4, ["checkpoints/clients", "clients.jsonl"]),
    "deployed": ("interrupted", 2, ["checkpoints/clients", *JOURNAL]),
    "module": ("interrupted", 2, []),
    "format-1": ("interrupted", 2, ["checkpoints/clients", "folder.json"]),
}
"""Per stored run its status, its rounds, and what only some runs have. The other tests read these files."""


def check_same(result, fresh):
    """Equal up to the rounding of another machine; columns that came later are in the fresh rows alone."""
    for row, other in zip(result.history, fresh.history, strict=True):
        assert [row[key] for key in EXACT] == [other[key] for key in EXACT]
        assert row["test_loss"] == pytest.approx(other["test_loss"], rel=1e-4)
        assert row["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=TWO_SAMPLES)
    found, expected = (
        {row["client"]: row["accuracy"] for row in each.clients if "accuracy" in row} for each in (result, fresh)
    )
    assert found == pytest.approx(expected, abs=TWO_SAMPLES)
    assert result.summary["status"] == "finished"
    assert result.summary["accuracy"] == pytest.approx(fresh.summary["accuracy"], abs=TWO_SAMPLES)
    weights, expected = result.model.state_dict(), fresh.model.state_dict()
    assert weights.keys() == expected.keys()
    for name, leaf in weights.items():
        torch.testing.assert_close(leaf, expected[name], rtol=1e-5, atol=1e-5)


def check_goes_on(folder):
    """Go on with a run as if it had never stopped, or be refused by the revisions."""
    changed = outdated(folder)
    if changed:
        assert refusal(*changed[0]) in refused(folder)
        return
    done = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    result = go_on(folder)
    if HELD[folder.name][0] == "interrupted":
        assert "test_accuracy" in facts_of(folder, "metrics.json")
    # Rounds that were done are read, not trained again.
    assert result.history[: len(done)] == done
    fresh = fedblade.run(folder / "config.toml", listener=RunListener(), **given(folder))
    check_same(result, fresh)
    loaded = fedblade.load(folder, **given(folder)).state_dict()
    assert all(torch.equal(leaf, loaded[name]) for name, leaf in result.model.state_dict().items())


def test_the_stored_folders_are_whole(stored):
    """The other tests would say little about folders that lack files, or that are all refused."""
    folders = runs_below(stored)
    assert {path.name for path in stored.iterdir()} == set(FOLDERS)
    assert {folder.name for folder in folders} == HELD.keys()
    some = {name for _, _, names in HELD.values() for name in names}
    for folder in folders:
        summary = facts_of(folder, "summary.json")
        there = sorted(name for name in some if (folder / name).exists())
        assert (summary["status"], summary["rounds"], there) == HELD[folder.name], folder
        assert len(list(folder.glob("checkpoints/round-*.safetensors"))) == 1
        assert {"revisions", "hardness", "pictures", "data"} <= facts_of(folder).keys()
    assert facts_of(stored / "module")["module"].keys() == {"layers", "frozen weights", "weights"}
    going = [folder for folder in folders if HELD[folder.name][0] == "interrupted" and not outdated(folder)]
    assert going, "the revisions refuse all stored runs that were cut short. Add a new folder: see make.py."


def test_stored_models_are_loaded_and_predict_what_they_did(stored):
    test = datasets.get("digits").make().test
    for folder in runs_below(stored):
        summary = facts_of(folder, "summary.json")
        if summary["status"] != "finished":
            with pytest.raises(Misconfigured, match="has not finished"):
                fedblade.load(folder, **given(folder))
            continue
        right = fedblade.load(folder).predict(test.inputs) == torch.as_tensor(test.labels)
        # A sample or two of 449 may fall to the other side of a boundary on another machine. A part of another revision
        # may predict otherwise.
        accuracy = 100 * float(right.float().mean())
        assert outdated(folder) or accuracy == pytest.approx(summary["final_accuracy"], abs=TWO_SAMPLES), folder


def test_stored_folders_are_reported_and_watched(stored, tmp_path):
    folders = runs_below(stored)
    for folder in folders:
        (record,) = read_runs([folder])
        assert record.left_out == ()
        assert record.stored_hardness is not None
        assert record.pictures
        # Older folders have no metrics.json: the built-in descriptions are taken.
        assert (record.stored_fields is not None) == ((folder / "metrics.json").is_file())
        assert ((folder / "metrics.json").is_file()) == ((folder / "folder.json").is_file())
        assert record.fields["test_accuracy"].label == "Test accuracy"
        page = build_report([folder], tmp_path / "one.html").read_text()
        assert record.summary["method"] in page
    page = build_report([stored], tmp_path / "all.html").read_text()
    used = {facts_of(folder, "summary.json")["method"] for folder in folders}
    assert all(method in page for method in used)
    assert [row.runs for row in comparison_rows([stored / "comparison"])] == [2, 2]
    watched = WatchedFolder(stored)
    assert watched.refresh()
    assert watched.problems == []
    found = {run.folder: (run.record.status, run.record.rounds_done) for run in watched.runs}
    assert found == {
        folder: tuple(facts_of(folder, "summary.json")[key] for key in ("status", "rounds")) for folder in folders
    }


def test_stored_runs_go_on_as_if_they_had_never_stopped(stored):
    # Nodes know the run by the token in the first of these files; the second keeps its notes of the first round.
    record, journal = ((stored / "deployed" / name).read_text() for name in JOURNAL)
    for folder in runs_below(stored):
        check_goes_on(folder)
    now, events = ((stored / "deployed" / name).read_text() for name in JOURNAL)
    assert json.loads(now)["token"] == json.loads(record)["token"]
    assert events.startswith(journal)


def test_a_stored_comparison_is_finished(stored):
    cells = [PlannedRun(folder.name, folder, config_of(folder)) for folder in runs_below(stored / "comparison")]
    current = [cell for cell in cells if not outdated(cell.folder)]
    before = contents(stored / "comparison")
    assert [cell.is_finished for cell in cells] == [cell in current for cell in cells]
    assert run_planned(current, lambda label: nullcontext(RunListener())) == {}
    assert contents(stored / "comparison") == before


def make_older(folder):
    """Take out of a folder what earlier versions did not write."""
    config = RunDirectory(folder).stored_config()
    for table, keys in LATER.items():
        for key in keys:
            del config[table][key]
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    for name in ("partition.json", "summary.json"):
        found = facts_of(folder, name)
        for key in ("revisions", "hardness", "pictures", "module"):
            found.pop(key, None)
        (folder / name).write_text(json.dumps(found))


def test_folders_that_lack_what_came_later_go_on_too(stored, tmp_path):
    old, module = stored / "interrupted", stored / "module"
    for folder in (old, module):
        make_older(folder)
        build_report([folder], tmp_path / "old.html")
    check_goes_on(old)
    # A module was read otherwise before there were revisions.
    changed = outdated(module)
    assert "model object" in [part for part, _, _ in changed]
    assert refusal(*changed[0]) in refused(module)


class Notes(RunListener):
    def __init__(self):
        self.notes = []

    def on_note(self, text):
        self.notes.append(text)


def test_a_stored_run_knows_the_module_it_was_given(stored):
    folder, before = stored / "module", contents(stored / "module")
    if outdated(folder):
        pytest.skip("the revisions refuse the run whatever module it is given")
    frozen, other, trained = own_module(), own_module(), own_module()
    frozen[1].weight.data[0, 0] += 1
    other[4] = torch.nn.Tanh()
    trained[3].weight.data[0, 0] += 1
    for module, part in ((frozen, "frozen weights"), (other, "layers")):
        with pytest.raises(Misconfigured, match=f"the {part} of the module differ from"):
            fedblade.run(out=folder, resume=True, model=module)
    assert contents(folder) == before
    listener = Notes()
    # What trains is read from the checkpoint.
    result = fedblade.run(out=folder, resume=True, model=trained, listener=listener)
    assert any("started from other weights" in note for note in listener.notes)
    check_same(result, fedblade.run(folder / "config.toml", listener=RunListener(), model=own_module()))
