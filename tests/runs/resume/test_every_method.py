"""A method that is interrupted and resumed ends with the very bits of the undisturbed run."""

import pytest

from fedblade.core.registry import methods, regularisers
from fedblade.runs import RunListener
from support.sample import sampled

NAMES = [*methods.names(), "fedprox+lddecorr", "moon+feddecorr", *(f"fedlc+{name}" for name in regularisers.names())]


class StopAfter(RunListener):
    """Raises when a round has been recorded."""

    def __init__(self, round_):
        self.round = round_

    def on_round(self, record):
        if record["round"] == self.round:
            raise KeyboardInterrupt


def interrupt_and_resume(mine, folder, *rounds):
    for last in rounds:
        with pytest.raises(KeyboardInterrupt):
            mine.run(folder, resume=True, listener=StopAfter(last))
    mine.run(folder, resume=True)


@pytest.mark.parametrize("method", sampled(NAMES))
def test_resuming_any_method_changes_no_bit(job, undisturbed, outcome_of, tmp_path, method):
    mine = job(method=method, rounds=6)
    interrupt_and_resume(mine, tmp_path / "run", 2, 4)
    assert outcome_of(tmp_path / "run") == undisturbed(mine)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "small_cnn", "hidden": None, "norm": None, "dataset": "digits", "dataset.path": None, "dim": 20},
        {"dtype": "float64"},
        {"persist": True},
        {"schedule": "step", "weighting": "uniform", "last_batch": "wrap"},
        {"evaluation.every": 4, "metrics": ["erank_feature", "nc1", "nc2"]},
        {"checkpoint.every": 5},
        {"hidden": [23], "dim": 11},
    ],
    ids=["cnn", "float64", "persist", "schedule", "metrics", "rare-checkpoints", "odd-widths"],
)
def test_resuming_any_setting_changes_no_bit(job, undisturbed, outcome_of, tmp_path, changes):
    mine = job(method="fedblade", rounds=6, **changes)
    interrupt_and_resume(mine, tmp_path / "run", 3)
    assert outcome_of(tmp_path / "run") == undisturbed(mine)


@pytest.mark.parametrize("participation", ["by_size", "power_of_choice"])
def test_resuming_any_choice_of_clients_changes_no_bit(job, undisturbed, outcome_of, tmp_path, participation):
    """Cohorts, clients that drop out and unfinished work belong to the round, not to the process."""
    chances = {"dropout": 0.3, "partial_work": 0.5, "unseen": 0.2, "test_split": "holdout"}
    mine = job(method="scaffold", rounds=6, participation=participation, **chances)
    interrupt_and_resume(mine, tmp_path / "run", 2, 4)
    assert outcome_of(tmp_path / "run") == undisturbed(mine)


def test_resuming_client_state_changes_no_bit(job, undisturbed, outcome_of, tmp_path, methods_of_mine):
    mine = job(method=methods_of_mine["scaffold"], momentum=0.0, rounds=9, hidden=[23], dim=11)
    interrupt_and_resume(mine, tmp_path / "run", 2, 4, 7)
    assert outcome_of(tmp_path / "run") == undisturbed(mine)
