"""Divergence and an accuracy at chance are flagged, for every kind of method, and a healthy run is not."""

import math

import pytest

import fedblade
from fedblade.report import build_report
from fedblade.results import comparison_rows, comparison_table
from fedblade.runs._flags import run_flags
from support.sample import sampled
from support.small_federation import build, train

SHORT = {"model": "mlp", "hidden": [16], "dim": 16, "num_clients": 6, "clients_per_round": 3, "epochs": 1,
         "metrics": ["accuracy"]}  # fmt: skip


@pytest.fixture
def flags_of():
    """The flags of a made-up history of the small federation."""
    setup = build("fedavg")
    return lambda history, finished=True: run_flags(setup, history, finished=finished)


def rounds(losses, accuracy=60.0):
    return [{"round": n, "test_accuracy": accuracy, "test_loss": loss} for n, loss in enumerate(losses, 1)]


def test_a_run_that_diverges_says_so_everywhere(tmp_path):
    out = tmp_path / "run"
    result = fedblade.run("quickstart", method="fedprox", lr=1, rounds=2, metrics=["accuracy"], out=out)
    (flag,) = result.summary["flags"]
    assert flag.startswith("diverged: the test loss is up to ")
    rows = comparison_rows([out])
    assert f"watch out, {rows[0].label}: {flag} (seed 1)" in comparison_table(rows, "terminal").notes
    assert ("watch out", True) in comparison_table(rows, "page").rows[0][0].tags
    assert "diverged: the test loss" in build_report([out], tmp_path / "page.html").read_text()


@pytest.mark.parametrize("method", ["fedetf", "fedblade", "fedgela", "local_dr"])
def test_a_learning_rate_that_is_much_too_high_is_seen_at_the_end(method):
    summary = fedblade.run("quickstart", method=method, lr=1e6, rounds=10, **SHORT).summary
    assert summary["status"] == "finished"
    assert any(flag.startswith("at chance: ") for flag in summary["flags"]), summary["flags"]
    clamped = [flag for flag in summary["flags"] if flag.endswith("(count_scale_clamped)")]
    assert bool(clamped) == (method in ("fedetf", "fedblade"))


@pytest.mark.parametrize(
    "method", sampled(["fedavg", "scaffold", "fedblade", "fedper", "ditto", "fedgela", "local_ce"])
)
def test_a_healthy_run_has_no_flag(method):
    ran = train(method, rounds=10)
    assert run_flags(ran.setup, ran.driver.history, finished=True) == []


def test_the_start_is_the_first_evaluated_round_if_that_had_not_diverged(flags_of):
    guess = math.log(5)
    assert flags_of(rounds([1.0, 9.9 * guess])) == []
    assert len(flags_of(rounds([0.1, 10.1 * guess]))) == 1
    assert flags_of(rounds([5 * guess, 49 * guess])) == []
    assert "that of the first evaluated round (8.05)" in flags_of(rounds([5 * guess, 51 * guess]))[0]
    assert flags_of(rounds([90 * guess, 90 * guess])) == []
    assert "that of guessing (1.61)" in flags_of(rounds([1e9, 2e8]))[0]


def test_only_the_end_counts_and_a_loss_that_is_no_number_is_infinite(flags_of):
    assert flags_of(rounds([1.0, 1e9] + [1.0] * 10)) == []
    for loss in (math.nan, math.inf, None):
        assert "up to inf in the last 2 evaluated rounds" in flags_of(rounds([1.0, loss]))[0]
    assert flags_of([{"round": 1}, {"round": 2}]) == []


def test_chance_is_for_runs_that_had_time_and_came_to_their_end(flags_of):
    at_chance = rounds([1.6] * 10, accuracy=20.0)
    (flag,) = flags_of(at_chance)
    assert flag.startswith("at chance: the accuracy at the end is 20.00 %, and guessing gives ")
    assert flags_of(at_chance, finished=False) == []
    assert flags_of(at_chance[:9]) == []
    late = rounds([1.6] * 5, accuracy=20.0) + [
        row | {"round": row["round"] + 5} for row in rounds([1.0] * 5, accuracy=60.0)
    ]
    assert flags_of(late) == []
