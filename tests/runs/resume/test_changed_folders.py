"""People change run folders: the run mends what it can, refuses what it cannot, and never gives another result."""

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import fedblade
from fedblade.core.errors import CorruptFile, FedbladeError, FolderLost, Misconfigured, RunFailed
from fedblade.results import read_record
from fedblade.runs import RunListener
from fedblade.runs._job import prepare


class Watch(RunListener):
    """Collects notes, and does something after a round."""

    def __init__(self, after=None, act=None):
        self.after, self.act, self.notes, self.rounds = after, act, [], []

    def on_round(self, record):
        self.rounds.append(record["round"])
        if record["round"] == self.after:
            self.act()

    def on_note(self, text):
        self.notes.append(text)


def stop():
    raise KeyboardInterrupt


@pytest.fixture
def cut_short(job, tmp_path):
    """A run of six rounds that was stopped after the fourth, without a summary."""

    def cut(name="run", **changes):
        mine, folder = job(**{"rounds": 6, "clients_per_round": 3} | changes), tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            mine.run(folder, listener=Watch(4, stop))
        (folder / "summary.json").unlink()
        return mine, folder

    return cut


@pytest.fixture
def stateful(methods_of_mine):
    return {"method": methods_of_mine["scaffold"], "momentum": 0.0}


def checkpoint(folder, round_):
    return folder / "checkpoints" / f"round-{round_:06d}.safetensors"


# The folder while the run writes to it.


@pytest.mark.parametrize("what", ["run", "run/checkpoints"])
def test_a_folder_that_is_removed_stops_the_run_and_the_run_is_saved_beside_it(
    job, undisturbed, outcome_of, tmp_path, what
):
    mine, folder = job(rounds=6), tmp_path / "run"
    with pytest.raises(FolderLost, match=r"All 3 rounds are saved in '.*run-rescued-1'\. Go on there: `fedblade run"):
        mine.run(folder, listener=Watch(3, lambda: shutil.rmtree(tmp_path / what)))
    assert not (tmp_path / what).exists()
    mine.run(tmp_path / "run-rescued-1", resume=True)
    outcome, whole = outcome_of(tmp_path / "run-rescued-1"), undisturbed(mine)
    assert outcome.history == whole.history
    # The lists of diagnostics of the first rounds were in the folder that is gone.
    assert {key: whole.files[key] for key in whole.files if key != "diagnostics.jsonl"}.items() <= outcome.files.items()


def test_a_folder_that_is_removed_with_the_states_of_clients_leaves_history_and_model(job, stateful, tmp_path):
    mine, folder = job(rounds=6, **stateful), tmp_path / "run"
    with pytest.raises(FolderLost, match=r"history and the model after 3 rounds .* cannot go on"):
        mine.run(folder, listener=Watch(3, lambda: shutil.rmtree(folder)))
    assert not folder.exists()
    rescued = tmp_path / "run-rescued-1"
    assert len((rescued / "history.jsonl").read_text().splitlines()) == 3
    assert fedblade.load(rescued).facts["num_classes"] == 10
    with pytest.raises(CorruptFile, match="3 rounds and no checkpoint"):
        mine.run(rescued, resume=True)


def test_a_folder_that_is_renamed_stops_the_run_which_goes_on_there(job, stateful, undisturbed, outcome_of, tmp_path):
    mine, folder, place = job(rounds=6, **stateful), tmp_path / "run", tmp_path / "other place"
    with pytest.raises(FolderLost, match=re.escape(f"`fedblade run --resume --out '{place}'`")):
        mine.run(folder, listener=Watch(3, lambda: folder.rename(place)))
    assert not folder.exists()
    mine.run(place, resume=True)
    assert outcome_of(place) == undisturbed(mine)


def test_another_error_in_a_lost_folder_saves_the_run_too(job, tmp_path):
    """A folder that is removed between two steps of a write gives the error of that step."""
    mine, folder = job(rounds=6), tmp_path / "run"

    def lose():
        shutil.rmtree(folder)
        raise RunFailed(f"cannot write '{folder}': No such file or directory.")

    with pytest.raises(FolderLost, match=r"All 3 rounds are saved in '.*run-rescued-1'"):
        mine.run(folder, listener=Watch(3, lose))


def test_a_folder_that_is_replaced_is_left_alone(job, tmp_path):
    mine, other, folder = job(rounds=6), tmp_path / "other", tmp_path / "run"
    job(rounds=2, seed=5).run(other)

    def replace():
        shutil.rmtree(folder)
        shutil.copytree(other, folder)

    with pytest.raises(FolderLost, match="removed, renamed or replaced"):
        mine.run(folder, listener=Watch(3, replace))
    assert contents(folder) == contents(other)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Files of a run that was cut short.


def blank(lines):
    lines[1] = b""


def cut(lines):
    lines[1] = lines[1][:30]


def no_text(lines):
    lines[1] = b"\xff\xfe" + lines[1]


def missing(lines):
    del lines[1:3]


def no_object(lines):
    lines[1] = b"null"


def other_number(lines):
    lines[1] = lines[1].replace(b'"test_accuracy": ', b'"test_accuracy": 1')


@pytest.mark.parametrize("fault", [blank, cut, no_text, missing, no_object, other_number])
def test_a_line_of_the_history_that_was_changed_costs_no_round(cut_short, undisturbed, outcome_of, fault):
    mine, folder = cut_short()
    lines = (folder / "history.jsonl").read_bytes().split(b"\n")
    fault(lines)
    (folder / "history.jsonl").write_bytes(b"\n".join(lines))
    watch = Watch()
    mine.run(folder, resume=True, listener=watch)
    assert any("round" in note and "mended from the journal" in note for note in watch.notes)
    assert watch.rounds == [5, 6]
    assert not list(folder.rglob("*.damaged"))
    assert outcome_of(folder) == undisturbed(mine)
    assert json.loads((folder / "history.jsonl").read_text().splitlines()[4])["round"] == 5


def test_a_line_that_nobody_has_any_more_is_named_and_set_aside(cut_short):
    mine, folder = cut_short()
    (folder / "checkpoints" / "journal.jsonl").unlink()
    lines = (folder / "history.jsonl").read_bytes().split(b"\n")
    no_text(lines)
    (folder / "history.jsonl").write_bytes(b"\n".join(lines))
    watch = Watch()
    assert mine.run(folder, resume=True, listener=watch).summary["rounds"] == 6
    assert any("line 2" in note and "set-aside" in note for note in watch.notes)
    assert any("the history lacks round 2" in note for note in watch.notes)
    assert (folder / "history.jsonl.set-aside").read_text().startswith("\\xff\\xfe{")
    rounds = [json.loads(line)["round"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert rounds == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["history.jsonl", "checkpoints/journal.jsonl", "folder.json", "partition.json"])
def test_a_file_of_another_run_changes_nothing(cut_short, undisturbed, outcome_of, name):
    (mine, folder), (_, other) = cut_short(), cut_short("other", seed=7)
    shutil.copy(other / name, folder / name)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.parametrize("name", ["folder.json", "partition.json", "metrics.json", "checkpoints/journal.jsonl"])
@pytest.mark.parametrize("fault", ["removed", "flipped"])
def test_a_file_that_can_be_made_again_is_made_again(cut_short, undisturbed, outcome_of, name, fault):
    mine, folder = cut_short()
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).unlink() if fault == "removed" else (folder / name).write_bytes(content)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_the_newest_checkpoint_of_another_round_or_run_is_not_used(cut_short, undisturbed, outcome_of):
    (mine, folder), (_, other) = cut_short(), cut_short("other", seed=7)
    shutil.copy(checkpoint(folder, 3), checkpoint(folder, 4))
    watch = Watch()
    mine.run(folder, resume=True, listener=watch)
    assert any("round-000004.safetensors' is the checkpoint of round 3" in note for note in watch.notes)
    assert outcome_of(folder) == undisturbed(mine)
    _, third = cut_short("third")
    shutil.copy(checkpoint(other, 4), checkpoint(third, 4))
    mine.run(third, resume=True, listener=watch)
    assert any("belongs to another run" in note for note in watch.notes)
    assert outcome_of(third) == undisturbed(mine)


def test_a_longer_history_of_another_run_does_not_count_as_rounds_without_checkpoints(
    job, undisturbed, outcome_of, tmp_path
):
    settings = {"rounds": 6, "checkpoint.every": 4}
    mine, folder = job(**settings), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        mine.run(folder, listener=Watch(1, stop))
    job(**settings, seed=7).run(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "history.jsonl", folder / "history.jsonl")
    (folder / "checkpoints" / "round-000001.safetensors").unlink()
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_stray_files_beside_the_checkpoints_are_left_alone(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    stray = folder / "checkpoints" / "round-000004 (copy).safetensors"
    shutil.copy(checkpoint(folder, 4), stray)
    mine.run(folder, resume=True)
    assert stray.exists()
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.parametrize("lost", ["clients", "checkpoints"])
def test_a_run_whose_states_are_gone_is_refused_and_nothing_is_written(cut_short, stateful, lost):
    mine, folder = cut_short(**stateful)
    shutil.rmtree(folder / "checkpoints" if lost == "checkpoints" else folder / "checkpoints" / "clients")
    before = (folder / "history.jsonl").read_bytes()
    with pytest.raises(FedbladeError, match=r"4 rounds and no checkpoint.*--restart"):
        mine.run(folder, resume=True)
    assert (folder / "history.jsonl").read_bytes() == before
    assert not (folder / "summary.json").exists()


@pytest.mark.parametrize(
    ("key", "before", "now"), [("lr", "0.02", "0.5"), ("batch_size", "32", "16"), ("dim", "16", "8")]
)
def test_an_edited_configuration_is_refused_with_both_values(cut_short, key, before, now):
    _, folder = cut_short()
    text = (folder / "config.toml").read_text()
    assert f"\n{key} = {before}\n" in text
    (folder / "config.toml").write_text(text.replace(f"\n{key} = {before}\n", f"\n{key} = {now}\n"))
    with pytest.raises(Misconfigured, match=rf"{key} = {before}, now it is {now} in its config\.toml\..*former value"):
        fedblade.run(out=folder, resume=True)


def test_a_lower_rate_and_other_metrics_are_refused_because_of_the_rate(cut_short):
    mine, folder = cut_short()
    changed = type(mine)(mine.data, mine.changes | {"lr": 0.001, "metrics": "accuracy"})
    with pytest.raises(Misconfigured, match=r"optimizer\.lr = 0\.02, now it is 0\.001"):
        changed.run(folder, resume=True)


def test_a_setting_that_the_configuration_lacks_is_as_the_run_has_it(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text[: text.index("[optimizer]")])
    result = fedblade.run(out=folder, resume=True)
    assert "changes" not in result.summary
    assert outcome_of(folder) == undisturbed(mine)
    assert (folder / "config.toml").read_text() == text


@pytest.mark.parametrize("how", [stop, lambda: None])
def test_a_history_that_is_changed_while_the_run_goes_on_is_mended(job, undisturbed, outcome_of, tmp_path, how):
    mine, folder = job(rounds=6), tmp_path / "run"

    def act():
        lines = (folder / "history.jsonl").read_bytes().split(b"\n")
        (folder / "history.jsonl").write_bytes(b"\r\n".join([*lines[:1], *lines[2:]]))
        how()

    watch = Watch(4, act)
    with pytest.raises(KeyboardInterrupt) if how is stop else contextlib.nullcontext():
        mine.run(folder, listener=watch)
    mine.run(folder, resume=True, listener=watch)
    assert any("history.jsonl'" in note and "changed or" in note for note in watch.notes)
    assert outcome_of(folder) == undisturbed(mine)


# Files of a finished run.


@pytest.mark.parametrize("name", ["model.safetensors", "history.jsonl", "summary.json", "clients.jsonl"])
@pytest.mark.parametrize("fault", ["removed", "flipped"])
def test_a_finished_run_is_made_whole_from_its_last_checkpoint(job, tmp_path, name, fault):
    mine, folder = job(rounds=2, method="fedper", **{"dataset.test_split": "matched"}), tmp_path / "run"
    mine.run(folder)
    before = (folder / name).read_bytes()
    content = bytearray(before)
    content[-40] ^= 1
    (folder / name).unlink() if fault == "removed" else (folder / name).write_bytes(content)
    mine.run(folder, resume=True)
    assert (folder / name).read_bytes() == before


def test_a_run_that_was_killed_before_its_digests_were_written_is_compared_with_the_journal(job, tmp_path):
    mine, folder = job(rounds=2), tmp_path / "run"
    mine.run(folder)
    before = (folder / "history.jsonl").read_bytes()
    (folder / "history.jsonl").write_bytes(before.replace(b'"test_accuracy": ', b'"test_accuracy": 1'))
    record = read_record(folder)
    (folder / "folder.json").write_text(replace(record, digests={}).as_json())
    mine.run(folder, resume=True)
    assert (folder / "history.jsonl").read_bytes() == before
    assert read_record(folder) == record


def test_other_line_ends_are_put_right(job, tmp_path):
    mine, folder = job(rounds=2), tmp_path / "run"
    mine.run(folder)
    names = ("history.jsonl", "diagnostics.jsonl", "metrics.json")
    before = [(folder / name).read_bytes() for name in names]
    for name, content in zip(names, before, strict=True):
        (folder / name).write_bytes(content.replace(b"\n", b"\r\n"))
    mine.run(folder, resume=True)
    assert [(folder / name).read_bytes() for name in names] == before


def test_a_model_of_another_run_is_not_loaded(job, tmp_path):
    folder, other = tmp_path / "run", tmp_path / "other"
    job(rounds=1).run(folder)
    job(rounds=1, seed=5).run(other)
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(CorruptFile, match="not the model that the run ended with"):
        fedblade.load(folder)


# What may change when a run goes on.


def test_more_rounds_give_the_run_that_was_longer_from_the_start(job, stateful, undisturbed, outcome_of, tmp_path):
    folder = tmp_path / "run"
    job(rounds=4, **stateful).run(folder)
    model = (folder / "model.safetensors").read_bytes()
    result = fedblade.run(out=folder, resume=True, rounds=6)
    assert result.summary["changes"] == [{"round": 4, "key": "federation.rounds", "before": 4, "now": 6}]
    assert outcome_of(folder) == undisturbed(job(rounds=6, **stateful))
    assert (folder / "former-1" / "model.safetensors").read_bytes() == model
    assert fedblade.run(out=folder, resume=True).history == result.history


def test_what_is_measured_and_saved_may_change(cut_short, undisturbed):
    mine, folder = cut_short()
    watch = Watch()
    changes = {"metrics": "accuracy,classes", "checkpoint.keep": 5, "device": "cpu", "engine": "sequential"}
    result = fedblade.run(out=folder, resume=True, listener=watch, **changes)
    assert "count_dead_classes" in " ".join(result.history[-1]) or "class" in " ".join(result.history[-1])
    assert any("going on with" in note and "checkpoint.keep = 5 (before: 2)" in note for note in watch.notes)
    assert 'engine = "sequential"' in (folder / "config.toml").read_text()
    assert [each["key"] for each in result.summary["changes"]] == [
        "checkpoint.keep", "device", "engine", "evaluation.metrics",
    ]  # fmt: skip
    before = undisturbed(mine).history[-1]["test_accuracy"]
    assert result.history[-1]["test_accuracy"] == pytest.approx(before, abs=2.0)


@pytest.mark.parametrize(
    ("settings", "rounds", "reason"),
    [({}, 4, "4 rounds are done"), ({"schedule": "step"}, 8, "depend on the number of rounds")],
)
def test_rounds_that_cannot_change_are_refused_with_the_reason(cut_short, settings, rounds, reason):
    _, folder = cut_short(**settings)
    with pytest.raises(Misconfigured, match=rf"federation\.rounds = 6, now it is {rounds}.*{reason}"):
        fedblade.run(out=folder, resume=True, rounds=rounds)


def test_a_model_that_was_changed_after_the_last_round_gets_no_more_rounds(job, tmp_path):
    job(rounds=2, method="ccvr").run(tmp_path / "run")
    with pytest.raises(Misconfigured, match="'ccvr' has changed its model after the last round"):
        fedblade.run(out=tmp_path / "run", resume=True, rounds=4)


def test_a_run_that_another_process_took_further_meanwhile_is_refused(cut_short, monkeypatch):
    mine, folder = cut_short()

    def prepare_slowly(*arguments):
        monkeypatch.undo()
        fedblade.run(out=folder, resume=True, rounds=8)
        return prepare(*arguments)

    monkeypatch.setattr("fedblade.runs._job.prepare", prepare_slowly)
    with pytest.raises(Misconfigured, match="8 rounds are done already"):
        mine.run(folder, resume=True)
    assert fedblade.run(out=folder, resume=True).summary["rounds"] == 8


def test_a_restart_that_cannot_be_built_leaves_the_run_where_it_is(cut_short, undisturbed, outcome_of, tmp_path):
    mine, folder = cut_short()
    with pytest.raises(Misconfigured, match="nowhere"):
        fedblade.run(out=folder, restart=True, **{"dataset.path": str(tmp_path / "nowhere.npz")})
    assert not (folder / "former-1").exists()
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_restart_that_was_cut_short_while_it_moved_files_can_be_asked_for_again(
    cut_short, undisturbed, outcome_of, monkeypatch
):
    mine, folder = cut_short()
    moved, rename = [], Path.rename

    def interrupted(path, target):
        if len(moved) == 3:
            raise KeyboardInterrupt
        moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=folder, restart=True)
    monkeypatch.undo()
    fedblade.run(out=folder, restart=True)
    assert outcome_of(folder) == undisturbed(mine)
    assert {path.name for path in folder.glob("former-*/*")} >= {"checkpoints", "history.jsonl", "config.toml"}


def test_a_rescued_run_still_tells_what_was_changed_in_it(cut_short, tmp_path):
    _, folder = cut_short()
    with pytest.raises(FolderLost):
        fedblade.run(
            out=folder, resume=True, listener=Watch(5, lambda: shutil.rmtree(folder)), **{"checkpoint.every": 2}
        )
    result = fedblade.run(out=tmp_path / "run-rescued-1", resume=True)
    assert [(change["key"], change["now"]) for change in result.summary["changes"]] == [("checkpoint.every", 2)]


def test_a_folder_without_a_run_is_not_started_by_resume_alone(tmp_path):
    with pytest.raises(Misconfigured, match=r"there is no run in '.*typo'"):
        fedblade.run(out=tmp_path / "typo", resume=True)
    assert not (tmp_path / "typo").exists()


def test_a_folder_of_a_newer_format_is_refused_with_the_version_to_install(job, tmp_path):
    import hashlib

    folder = tmp_path / "run"
    job(rounds=1).run(folder)
    record = json.loads((folder / "folder.json").read_text()) | {"format": 99, "fedblade": "7.0"}
    del record["seal"]
    seal = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (folder / "folder.json").write_text(json.dumps(record | {"seal": seal}))
    for use in (lambda: fedblade.run(out=folder, resume=True), lambda: fedblade.load(folder)):
        with pytest.raises(Misconfigured, match=r"fedblade 7\.0 in format 99.*pip install 'fedblade>=7\.0'"):
            use()
