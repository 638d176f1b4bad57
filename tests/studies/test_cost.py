"""Cost: counted steps against the plan of the run itself, guesses and durations by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.lengths import PhasePlan, epoch_batches, phase_epochs, phase_steps
from fedblade.runs import Work, count_work, guess_work, load_config, prepare, training_split
from fedblade.studies import Estimate, _estimate, estimate_cost
from fedblade.studies._estimate import duration
from fedblade.studies._timing import Speed, _fit_line, measure_speed

SMALL = {"model": "mlp", "hidden": [16], "dim": 8, "method": "fedavg", "rounds": 4, "epochs": 2}


def config_of(**changes):
    given = {key: value for key, value in SMALL.items() if key != "epochs" or "local.steps" not in changes}
    return load_config("quickstart", given | changes)[0]


@pytest.mark.parametrize("last_batch", ["keep", "drop", "wrap"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_steps_of_an_epoch(last_batch, skip, batch_size):
    """Against batches that are cut one by one."""
    for samples in range(1, 70):
        lengths = [min(batch_size, samples - start) for start in range(0, samples, batch_size)]
        if lengths[-1] < batch_size:
            lengths = {"keep": lengths, "drop": lengths[:-1], "wrap": [*lengths[:-1], batch_size]}[last_batch]
        expected = sum(length > 1 or not skip for length in lengths)
        kept, alone = epoch_batches(np.array([samples]), batch_size, last_batch, skip_singletons=skip)
        assert (kept[0], alone[0]) == (expected, len(lengths) - expected)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"last_batch": "drop", "batch_size": 20},
        {"last_batch": "wrap", "alpha": 0.5},
        {"partition": "stochastic_removal", "rounds": 12, "num_clients": 10, "partition.every": 3},
        {"partition": "dirichlet", "alpha": 0.1, "min_size": 0, "allow_empty": True, "num_clients": 40},
        {"test_split": "holdout"},
        {"local.steps": 9, "alpha": 0.1, "min_size": 1, "batch_size": 20},
        {"local.steps": 5, "last_batch": "drop", "batch_size": 60},
        {"evaluation.on": "validation", "batch_size": 5},
    ],
)
def test_counted_steps_are_those_of_the_plan(changes, skip):
    config = config_of(**changes)
    setup = prepare(config)
    planner = replace(setup.planner, skip_singletons=skip)
    steps = [[planner.task(t, int(k)).num_steps for k in cohort] for t, cohort in enumerate(setup.cohorts)]
    split = training_split(config, setup.dataset)
    for first in (0, 3):
        work = count_work(config, split, skip_singletons=skip, first_round=first)
        assert work.client_steps == sum(map(sum, steps[first:]))
        assert work.longest_steps == sum(map(max, steps[first:]))


def test_a_phase_with_steps_lasts_as_long_for_every_client_that_has_a_batch():
    batches = np.array([0, 1, 2, 3, 7])
    open_ = PhasePlan(None, 6)
    assert phase_steps(open_, batches).tolist() == [0, 6, 6, 6, 6]
    assert phase_epochs(open_, batches).tolist() == [1, 6, 3, 2, 1]
    paired = PhasePlan(None, 6, paired=True)
    assert phase_steps(paired, batches).tolist() == [0, 6, 6, 6, 6]
    assert phase_epochs(paired, batches).tolist() == [1, 6, 6, 6, 2]
    both = PhasePlan(2, 6)
    assert phase_steps(both, batches).tolist() == [0, 2, 4, 6, 6]
    assert phase_epochs(both, batches).tolist() == [2, 2, 2, 2, 1]
    assert phase_steps(PhasePlan(2), batches).tolist() == [0, 2, 4, 6, 14]


def test_client_rounds_and_evaluations():
    config = config_of(**{"evaluation.every": 3, "rounds": 7})
    work = count_work(config, training_split(config, config.dataset.make()), skip_singletons=False)
    assert (work.client_rounds, work.evaluations, work.exact) == (7 * 10, 3, True)


def test_a_guess_divides_the_data_evenly():
    config = config_of(num_clients=100, clients_per_round=20, batch_size=64, epochs=5, rounds=200)
    guess = guess_work(replace(config, dataset=replace(config.dataset, name="cifar10")))
    assert guess == Work(200 * 20 * 5 * 8, 200 * 5 * 8, client_rounds=4000, evaluations=200, exact=False)
    assert guess_work(replace(config, dataset=replace(config.dataset, name="nobody_knows"))) is None


def test_seconds_follow_from_steps_clients_and_evaluations():
    work = Work(client_steps=12, longest_steps=5, client_rounds=4, evaluations=3, exact=True)
    assert Speed(0.5, 0.0, 0.25, 2.0).seconds(work) == 6.0 + 1.0 + 6.0
    assert Speed(0.5, 3.0, 0.25, 2.0, together=4).seconds(work) == 5 * 3.0 + 6.0 + 1.0 + 6.0
    assert Speed(0.5, 3.0, 0.25, 2.0, together=2).seconds(work) == 6 * 3.0 + 6.0 + 1.0 + 6.0


@pytest.mark.parametrize(
    ("alone", "whole", "together", "expected"),
    [(11.5, 21.0, 20, (0.5, 11.0)), (2.0, 2.0, 1, (2.0, 0.0)), (5.0, 4.0, 4, (0.0, 4.0)), (1.0, 9.0, 8, (9 / 8, 0.0))],
    ids=["gpu", "one", "faster together", "slower together"],
)
def test_a_step_of_many_clients_is_split_into_theirs_and_its_own(alone, whole, together, expected):
    assert _fit_line(alone, whole, together) == pytest.approx(expected)


def test_a_few_steps_give_the_speed():
    config = config_of()
    speed, skips = measure_speed(config, config.dataset.make())
    assert skips is False
    # One of the two may be lost in the noise of so small a step, never both.
    assert 0 <= speed.step < 1
    assert 0 <= speed.shared < 1
    assert speed.step + speed.shared > 0
    assert 0 <= speed.client < 1
    assert 0 < speed.evaluation < 5


def test_cohorts_of_other_sizes_and_other_engines_are_timed_separately(monkeypatch):
    timed = []

    def timing(config, _):
        timed.append((config.federation.clients_per_round, config.general.engine))
        return Speed(1.0, 0.0, 0.0, 0.0), False

    monkeypatch.setattr(_estimate, "measure_speed", timing)
    changes = [{}, {"seed": 2}, {"clients_per_round": 5}, {"engine": "sequential"}, {"lr": 0.5}]
    told = []
    found = estimate_cost([(config_of(**change), 0) for change in changes], told.append, told.append)
    assert timed == [(10, "auto"), (5, "auto"), (10, "sequential")]
    assert found.timings == 3
    assert told.count("reading digits") == 1
    assert told.count("fedavg, mlp, inputs 1×8×8") == 3


def test_an_estimate_adds_up_and_names_absent_data(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    here = config_of()
    work = count_work(here, training_split(here, here.dataset.make()), skip_singletons=False)
    two = estimate_cost([(here, 0), (here, 0)])
    assert two.client_steps == 2 * work.client_steps
    assert two.exact
    assert two.seconds > 0
    away = config_of(dataset="cifar10", num_clients=100, batch_size=64)
    told = []
    both = estimate_cost([(here, 0), (away, 1)], told.append, told.append)
    assert both.client_steps == work.client_steps + 3 * 10 * 2 * 8
    assert (both.seconds > 0, both.exact, list(both.absent)) == (True, False, ["cifar10"])
    assert "guessed from the sizes" in both.sentence()
    assert both.sentence().endswith(
        "CPU for 1 of 2 runs (from 1 timing of a few steps), unknown for the others without their data"
    )
    assert told.index("reading cifar10") < told.index("fedavg, mlp, inputs 1×8×8")
    none = estimate_cost([(away, 1)], on_timing=pytest.fail)
    assert (none.seconds, none.sentence().endswith("time unknown without the data")) == (None, True)


def test_an_estimate_says_what_it_is_based_on():
    cost = Estimate(480_000, 41 * 86400.0, exact=True, unknown=0, absent={}, runs=1, timings=1)
    assert cost.sentence() == (
        "480,000 client-steps, about 41 days on this machine's CPU; use a GPU (from 1 timing of a few steps)"
    )
    quick = replace(cost, seconds=7200.0, timings=9, device="cuda")
    assert quick.sentence().endswith("about 2.0 hours on this machine's GPU (from 9 timings of a few steps)")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "a second"),
        (80, "80 seconds"),
        (90, "1.5 minutes"),
        (5400, "1.5 hours"),
        (200_000, "2.3 days"),
        (41.4 * 86400, "41 days"),
        (1500 * 86400, "1,500 days"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
