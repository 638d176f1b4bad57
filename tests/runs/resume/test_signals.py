"""Ctrl-C and SIGTERM leave a run that says it was interrupted and goes on to the same result."""

import json
import signal

import pytest


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_a_signal_leaves_a_resumable_run(job, stop, undisturbed, outcome_of, tmp_path, number, status):
    mine, folder = job(**{"checkpoint.every": 50}), tmp_path / "run"
    child = mine.start(folder)
    assert stop(child, folder, 5, 0.02, number) == status
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert 5 <= summary["rounds"] < 40
    assert [p.stem for p in (folder / "checkpoints").glob("*.safetensors")] == [f"round-{summary['rounds']:06d}"]
    assert not list(folder.rglob("*.tmp"))
    mine.run(folder, resume=True)
    assert outcome_of(folder) == undisturbed(mine)


def test_the_message_of_an_interruption_is_one_line_that_says_how_to_go_on(job, tmp_path):
    folder = tmp_path / "run"
    child = job(rounds=4000).start(folder)
    for line in child.stdout:
        if line.startswith("round "):
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert len(err.splitlines()) == 1
    assert "--resume" in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_a_signal_while_everything_is_being_loaded_leaves_no_mess(job, stop, tmp_path, number, status):
    mine, folder = job(rounds=2), tmp_path / "run"
    child = mine.start(folder)
    assert stop(child, folder, 0, 0.6, number) in (status, -number)  # by itself before the handler is there
    assert mine.run(folder, resume=True).summary["status"] == "finished"
