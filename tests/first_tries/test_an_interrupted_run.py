"""A person presses Ctrl-C in a run that writes no folder, and keeps what was done."""

import pytest

import fedblade
from fedblade.api import RunListener

SMALL = {
    "model": "mlp", "dim": 6, "hidden": [8], "num_clients": 4, "clients_per_round": 2, "rounds": 6, "device": "cpu",
    "metrics": "accuracy", "method": "fedavg",
}  # fmt: skip


class CtrlC(RunListener):
    """Presses Ctrl-C while the clients of a round train."""

    def __init__(self, round_):
        self._round, self.notes = round_, []

    def on_client(self, round_, client):
        if round_ == self._round:
            raise KeyboardInterrupt

    def on_note(self, text):
        self.notes.append(text)


def test_the_complete_rounds_are_the_result():
    keys = CtrlC(3)
    result = fedblade.run(listener=keys, **SMALL)
    two = fedblade.run(listener=RunListener(), **{**SMALL, "rounds": 2})
    assert result.interrupted
    assert result.summary["status"] == "interrupted"
    assert result.summary["rounds"] == 2
    assert [row["test_accuracy"] for row in result.history] == [row["test_accuracy"] for row in two.history]
    ours, theirs = result.model.state_dict(), two.model.state_dict()
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert keys.notes[-1] == (
        "interrupted: the result has the 2 rounds that were complete. Nothing was written, so the run cannot go on."
    )
    assert not two.interrupted


def test_without_a_complete_round_there_is_no_result():
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(listener=CtrlC(1), **SMALL)


def test_a_run_with_a_folder_goes_on_later(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(listener=CtrlC(3), out=tmp_path / "run", **SMALL)
    assert len(fedblade.run(listener=RunListener(), out=tmp_path / "run", resume=True).history) == 6
