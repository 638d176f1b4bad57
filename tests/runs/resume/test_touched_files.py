"""Somebody changes files of a run folder while the run writes to it: the folder ends as if nobody had."""

import re
import shutil

import pytest

import fedblade
from fedblade.core.errors import FolderLost, Misconfigured
from fedblade.results import read_runs, unreadable_note
from fedblade.runs import RunListener

KNOWN = ("history.jsonl", "config.toml", "folder.json", "partition.json", "metrics.json")


class Watch(RunListener):
    """Collects notes, and does something after the third round."""

    def __init__(self, act):
        self.act, self.notes = act, []

    def on_round(self, record):
        if record["round"] == 3:
            self.act()

    def on_note(self, text):
        self.notes.append(text)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "removed":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.fixture
def stateful(methods_of_mine):
    return {"method": methods_of_mine["scaffold"], "momentum": 0.0}


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """The files of runs that nobody touches, by their settings."""
    known = {}

    def files(job):
        if str(job.keys) not in known:
            job.run(folder := tmp_path_factory.mktemp("alone") / "run")
            known[str(job.keys)] = {name: (folder / name).read_bytes() for name in KNOWN[1:] if name != "folder.json"}
        return known[str(job.keys)]

    return files


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
def test_a_file_that_the_run_knows_is_as_if_nobody_had_touched_it(
    job, undisturbed, outcome_of, left_alone, tmp_path, name, how
):
    mine, folder = job(rounds=5, method="fedper", **{"dataset.test_split": "matched"}), tmp_path / "run"
    watch = Watch(lambda: damage(folder / name, how))
    mine.run(folder, listener=watch)
    assert outcome_of(folder) == undisturbed(mine)
    written = {each: (folder / each).read_bytes() for each in left_alone(mine)}
    if (name, how) == ("config.toml", "flipped"):
        # It may still be a configuration: it is the user's, and does not count.
        (record,) = read_runs([folder])
        assert record.config["seed"] == 1
        del written["config.toml"]
    assert written.items() <= left_alone(mine).items()
    if name in ("history.jsonl", "partition.json"):
        assert any(name in note and "while the run went on" in note for note in watch.notes)
    (record,) = read_runs([folder])
    assert (record.left_out, record.changed) == ((), ())
    # The run counts as finished, and nothing is written again.
    if not record.edited:
        fedblade.run(out=folder, resume=True, listener=(again := Watch(lambda: None)))
        assert any("already finished" in note for note in again.notes)


def test_lists_of_diagnostics_that_were_changed_are_left_out_and_named(job, tmp_path):
    watch = Watch(lambda: damage(tmp_path / "run" / "diagnostics.jsonl", "flipped"))
    job(rounds=5).run(tmp_path / "run", listener=watch)
    assert any("diagnostics.jsonl': round" in note and "left out" in note for note in watch.notes)
    (record,) = read_runs([tmp_path / "run"])
    assert len(record.diagnostics) == 4


@pytest.mark.parametrize("name", ["round-000003.safetensors", "journal.jsonl"])
def test_a_checkpoint_that_is_removed_at_once_does_no_harm(job, undisturbed, outcome_of, tmp_path, name):
    mine, folder = job(rounds=5), tmp_path / "run"
    mine.run(folder, listener=Watch(lambda: (folder / "checkpoints" / name).unlink()))
    assert outcome_of(folder) == undisturbed(mine)


def test_checkpoints_that_were_renamed_can_be_moved_back(job, stateful, undisturbed, outcome_of, tmp_path):
    mine, folder = job(rounds=5, **stateful), tmp_path / "my run"
    saved, elsewhere = folder / "checkpoints", tmp_path / "elsewhere"
    advice = re.escape(f"It is now '{elsewhere}'. Move it back, then go on: `fedblade run --resume --out '{folder}'`")
    with pytest.raises(FolderLost, match=advice):
        mine.run(folder, listener=Watch(lambda: saved.rename(elsewhere)))
    assert not list(tmp_path.glob("*rescued*"))
    elsewhere.rename(saved)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_relative_folder_whose_checkpoints_are_gone_is_rescued(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderLost, match="All 3 rounds are saved in 'run-rescued-1'"):
        job(rounds=5).run("run", listener=Watch(lambda: shutil.rmtree("run/checkpoints")))


def test_a_stateful_run_whose_folder_is_gone_is_rescued_whatever_fails_first(job, stateful, tmp_path):
    """Here the store of client states is the first to write."""
    folder = tmp_path / "run"

    class RemovesWhileClientsTrain(RunListener):
        def on_client(self, round_, client):
            if round_ == 3:
                shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(FolderLost, match=r"history and the model after 2 rounds are saved in '.*run-rescued-1'"):
        job(rounds=5, **stateful).run(folder, listener=RemovesWhileClientsTrain())


# The configuration.


def test_a_finished_run_gets_its_configuration_back(job, tmp_path):
    folder = tmp_path / "run"
    job(rounds=2).run(folder)
    before = (folder / "config.toml").read_bytes()
    (folder / "config.toml").unlink()
    assert fedblade.load(folder).facts["num_classes"] == 10
    assert job(rounds=2).run(folder, resume=True).summary["rounds"] == 2
    assert (folder / "config.toml").read_bytes() == before


def test_an_edited_configuration_that_is_none_is_named_with_a_way_out(job, tmp_path):
    folder = tmp_path / "run"
    job(rounds=2).run(folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("epochs = ", "epoks = "))
    with pytest.raises(Misconfigured, match=r"config\.toml' was edited: unknown key 'local\.epoks'.*remove this file"):
        fedblade.run(out=folder, resume=True)
    config.unlink()
    assert fedblade.run(out=folder, resume=True).summary["rounds"] == 2


def test_a_report_shows_the_settings_of_the_run_not_those_of_an_edited_file(job, tmp_path):
    folder = tmp_path / "run"
    job(rounds=2).run(folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("batch_size = 32", "batch_size = 99"))
    (record,) = read_runs([folder])
    assert record.config["local"]["batch_size"] == 32
    assert unreadable_note([record]) == (
        "Edited since the run was started, so the settings shown are those of the run: run/config.toml."
    )


def test_another_method_is_named_first(job, tmp_path):
    job(rounds=2).run(tmp_path / "run")
    with pytest.raises(Misconfigured, match=r"started with method\.name = 'fedavg', now it is 'fedetf'"):
        fedblade.run(out=tmp_path / "run", resume=True, method="fedetf")
