"""Files torn by a crash or a bad disk: the run falls back and still gives the same result, or says what is wrong."""

import json
import shutil
from pathlib import Path

import pytest

from fedblade.core.errors import CorruptFile
from fedblade.runs import RunListener
from support.stored_states import state_files


class Watch(RunListener):
    """Collects notes; raises after a round, as a kill would."""

    def __init__(self, last=None):
        self.last, self.notes = last, []

    def on_round(self, record):
        if record["round"] == self.last:
            raise KeyboardInterrupt

    def on_note(self, text):
        self.notes.append(text)


@pytest.fixture
def cut_short(job, tmp_path):
    """A run of twelve rounds that was killed after the seventh, without a summary."""

    def cut(**changes):
        mine, folder = job(**{"rounds": 12} | changes), tmp_path / "run"
        with pytest.raises(KeyboardInterrupt):
            mine.run(folder, listener=Watch(last=7))
        (folder / "summary.json").unlink()
        return mine, folder

    return cut


def checkpoints(folder):
    return sorted((folder / "checkpoints").glob("round-*.safetensors"))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_in_data(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 0x10
    path.write_bytes(content)


def flip_in_first_state(path):
    content = bytearray(path.read_bytes())
    content[2000] ^= 0x10
    path.write_bytes(content)


def flip_in_header(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 0x01
    path.write_bytes(content)


def blow_up_header(path):
    """A header length beyond the file."""
    content = bytearray(path.read_bytes())
    content[:8] = (2**40).to_bytes(8, "little")
    path.write_bytes(content)


DAMAGES = [truncate, empty, flip_in_data, flip_in_header, blow_up_header]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(cut_short, undisturbed, outcome_of, damage):
    mine, folder = cut_short()
    assert [path.stem for path in checkpoints(folder)] == ["round-000006", "round-000007"]
    damage(checkpoints(folder)[-1])
    watch = Watch()
    mine.run(folder, resume=True, listener=watch)
    assert any("round 7" in note and "damaged" in note for note in watch.notes)
    assert outcome_of(folder) == undisturbed(mine)


def test_when_all_checkpoints_are_damaged_only_restart_starts_over(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    for path in checkpoints(folder):
        truncate(path)
    history = (folder / "history.jsonl").read_bytes()
    with pytest.raises(CorruptFile, match=r"7 rounds and no checkpoint .*round-000006.*--restart"):
        mine.run(folder, resume=True)
    assert (folder / "history.jsonl").read_bytes() == history
    assert not (folder / "summary.json").exists()
    mine.run(folder, restart=True)
    assert outcome_of(folder) == undisturbed(mine)
    assert (folder / "former-1" / "history.jsonl").read_bytes() == history


def test_client_state_follows_the_checkpoint_that_is_used(cut_short, undisturbed, outcome_of, methods_of_mine):
    """The files of rounds after the checkpoint are there and must not be read."""
    mine, folder = cut_short(method=methods_of_mine["scaffold"], momentum=0.0)
    flip_in_data(checkpoints(folder)[-1])
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_personal_momentum_follows_the_checkpoint_too(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short(persist=True, **{"checkpoint.every": 3})
    truncate(checkpoints(folder)[-1])
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


@pytest.mark.parametrize("damage", [truncate, flip_in_data, Path.unlink])
def test_client_states_that_are_gone_or_damaged_refuse_the_resume(cut_short, methods_of_mine, damage):
    mine, folder = cut_short(method=methods_of_mine["scaffold"], momentum=0.0)
    for path in state_files(folder):
        damage(path)
    with pytest.raises(CorruptFile, match=r"no checkpoint that the run can go on from.*states"):
        mine.run(folder, resume=True)
    assert not (folder / "summary.json").exists()


def test_a_damaged_client_state_stops_the_run_rather_than_change_it(cut_short, methods_of_mine):
    """Only the index is read at the start, and a state when its client takes part."""
    mine, folder = cut_short(method=methods_of_mine["scaffold"], momentum=0.0, clients_per_round=8)
    for path in state_files(folder):
        flip_in_first_state(path)
    with pytest.raises(CorruptFile, match=r"the state of client \d is lost") as caught:
        mine.run(folder, resume=True)
    # Without the file the client would silently start from zero, so nobody must be told to delete it.
    assert "Remove it" not in str(caught.value)
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"


def test_old_client_files_are_dropped(job, tmp_path, methods_of_mine):
    job(method=methods_of_mine["scaffold"], momentum=0.0, clients_per_round=8, rounds=12).run(tmp_path / "run")
    assert [path.name for path in state_files(tmp_path)] == ["000010-0-0.states", "000011-0-0.states"]


@pytest.mark.parametrize("torn", ['{"round": 8, "clie', '{"round": 8', "{", "\x00\x00\x00", '{"round": 8}\n{"rou'])
def test_a_torn_line_after_the_checkpoint_is_dropped(cut_short, undisturbed, outcome_of, torn):
    mine, folder = cut_short()
    with (folder / "history.jsonl").open("a") as file:
        file.write(torn)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_torn_line_of_the_newest_checkpoint_falls_back_to_the_one_before(cut_short, undisturbed, outcome_of):
    """A power cut can lose the end of the history although the checkpoint, another file, is whole."""
    mine, folder = cut_short()
    truncate(folder / "history.jsonl")
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_bytes_that_are_no_text_in_a_torn_line_are_survived(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    with (folder / "history.jsonl").open("ab") as file:
        file.write(b'{"round": 8, "x": "\xff\xfe')
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_history_that_is_gone_is_written_again(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    (folder / "history.jsonl").unlink()
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_temporary_files_of_a_killed_writer_do_no_harm_and_do_not_pile_up(cut_short, undisturbed, outcome_of):
    mine, folder = cut_short()
    source = checkpoints(folder)[0]
    left = [folder / ".summary.json.ab12.tmp", folder / "checkpoints" / ".round-000008.safetensors.cd34.tmp"]
    for path in left:
        shutil.copy(source, path)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)
    assert [path for path in left if path.exists()] == []


@pytest.mark.parametrize("evaluate_every", [1, 5])
def test_more_kept_checkpoints_and_rarer_evaluations_change_nothing(cut_short, undisturbed, outcome_of, evaluate_every):
    mine, folder = cut_short(**{"checkpoint.keep": 4, "evaluation.every": evaluate_every, "schedule": "step"})
    for path in checkpoints(folder)[-3:]:
        truncate(path)
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_model_that_was_not_written_is_written_by_a_resume(job, undisturbed, outcome_of, tmp_path):
    """Killed after the last checkpoint, before the model and the summary."""
    mine, folder = job(rounds=12), tmp_path / "run"
    mine.run(folder)
    (folder / "model.safetensors").unlink()
    (folder / "summary.json").unlink()
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_a_finished_run_gets_a_damaged_model_from_its_last_checkpoint(job, undisturbed, outcome_of, tmp_path):
    mine, folder = job(rounds=12), tmp_path / "run"
    mine.run(folder)
    flip_in_data(folder / "model.safetensors")
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)
