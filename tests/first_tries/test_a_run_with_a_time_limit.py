"""A person gives a run a minute: it ends in time with a result, says why, and goes on when it gets more."""

import subprocess
import sys

import pytest

import fedblade
from fedblade.runs import RunListener

SMALL = {"model": "mlp", "dim": 8, "num_clients": 6, "clients_per_round": 3, "metrics": "accuracy", "device": "cpu"}
TINY = 1e-6
"""A limit that the first round exceeds on every machine."""


class Notes(RunListener):
    def __init__(self):
        self.texts = []

    def on_note(self, text):
        self.texts.append(text)


def test_the_run_ends_after_the_round_in_which_the_time_runs_out():
    notes = Notes()
    result = fedblade.run(rounds=200, max_seconds=TINY, listener=notes, **SMALL)
    assert len(result.history) == 1
    assert result.summary["status"] == "finished"
    assert result.summary["stopped"] == {
        "round": 1, "reason": "max_seconds", "limit": TINY, "rounds": 200,
        "text": "stopped after round 1 of 200: its rounds have taken 1e-06 s (stop.max_seconds)",
    }  # fmt: skip
    assert notes.texts[-1] == f"{result.summary['stopped']['text']}."
    assert result.history[0]["wall_seconds"] > result.history[0]["seconds"] > 0


def test_a_run_that_gets_more_time_goes_on_where_it_was(tmp_path):
    whole = fedblade.run(rounds=4, **SMALL)
    stopped = fedblade.run(rounds=4, max_seconds=TINY, out=tmp_path / "run", listener=RunListener(), **SMALL)
    again, notes = Notes(), Notes()
    same = fedblade.run(out=tmp_path / "run", resume=True, listener=again)
    assert len(same.history) == len(stopped.history) == 1
    assert "raise stop.max_seconds or set it to none" in again.texts[-2]
    longer = fedblade.run(out=tmp_path / "run", resume=True, max_seconds="none", listener=notes)
    assert [row["test_accuracy"] for row in longer.history] == [row["test_accuracy"] for row in whole.history]
    assert "stopped" not in longer.summary
    assert any("the result so far is kept in" in text for text in notes.texts)


def test_the_command_says_why_it_ended(tmp_path):
    command = [
        sys.executable, "-m", "fedblade", "run", "--out", str(tmp_path / "run"), "--set", f"max_seconds={TINY}",
        *(part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "stopped after round 1 of 40: its rounds have taken 1e-06 s (stop.max_seconds)" in done.stdout


@pytest.mark.parametrize("limit", [0, -3, "soon"])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(fedblade.api.Misconfigured, match=r"stop\.max_seconds = .* is not allowed"):
        fedblade.run(max_seconds=limit, **SMALL)
