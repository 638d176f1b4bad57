"""Cost: counted steps against the plan of the run itself, guesses and durations by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.lengths import PhasePlan, epoch_batches, phase_epochs, phase_steps
from fedblade.runs import Work, count_work, guess_work, load_config, prepare, training_split
from fedblade.studies import Estimate, _estimate, _timing, estimate_cost
from fedblade.studies._estimate import time_in_words
from fedblade.studies._timing import Speed, fit_costs, measure_speed

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
        work = count_work(config, split, skip_singletons=skip, group_size=4, first_round=first)
        assert work.client_steps == sum(map(sum, steps[first:]))
        longest_first = [sorted(of_clients, reverse=True) for of_clients in steps[first:]]
        assert work.groups == 3 * len(longest_first), "ten clients are three groups of four at most"
        assert work.group_steps == sum(sum(of_clients[::4]) for of_clients in longest_first)


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
    config = config_of(**{"evaluation.every": 2, "evaluation.diagnostics_every": 4, "rounds": 7})
    work = count_work(config, training_split(config, config.dataset.make()), skip_singletons=False)
    assert (work.rounds, work.client_rounds, work.exact) == (7, 7 * 10, True)
    assert (work.evaluations, work.diagnoses, work.models, work.final_passes) == (2, 2, 1, 0), "2 and 6, 4 and 7"
    personal = config_of(method="ditto")
    work = count_work(personal, training_split(personal, personal.dataset.make()), skip_singletons=False)
    assert (work.evaluations, work.diagnoses, work.final_passes) == (0, 4, 20), "each client on the whole test set"


def test_a_guess_divides_the_data_evenly():
    config = config_of(num_clients=100, clients_per_round=20, batch_size=64, epochs=5, rounds=200)
    guess = guess_work(replace(config, dataset=replace(config.dataset, name="cifar10")))
    assert guess == Work(200 * 20 * 5 * 8, exact=False)
    assert guess_work(replace(config, dataset=replace(config.dataset, name="nobody_knows"))) is None


def test_seconds_follow_from_the_work():
    speed = Speed(100.0, 1.0, (2.0, 3.0, 5.0), 7.0, 11.0, 13.0, (17.0, 19.0), (23.0, 29.0))
    work = Work(6, rounds=4, groups=1, group_steps=2, client_rounds=8, evaluations=1, diagnoses=2, models=3)
    rounds = 1 + 2 + 2 * 3 + 6 * 5 + 8 * 7 + 4 * 13
    assert speed.seconds(work) == rounds + 4 * 11 + (17 + 3 * 19) + 2 * (23 + 3 * 29)
    assert speed.seconds(replace(work, final_passes=20)) == speed.seconds(work) + 20 * 19


@pytest.mark.parametrize(
    ("costs", "counts"),
    [
        ((0.0, 4.0, 0.25), [(1, 4, 4), (1, 4, 40), (1, 12, 78)]),
        ((6.0, 0.0, 0.5), [(1, 4, 4), (1, 16, 16), (4, 64, 64)]),
        ((0.0, 0.0, 0.5), [(1, 4, 4)]),
        ((3.0, 2.0), [(1, 0.1), (1, 0.4), (1, 1)]),
    ],
    ids=["side by side", "one after another", "a single measurement", "passes"],
)
def test_costs_follow_from_measurements(costs, counts):
    assert fit_costs(counts, [np.dot(row, costs) for row in counts]) == pytest.approx(costs)


def test_costs_are_never_negative_and_meet_the_last_measurement():
    counts = [(1, 4, 4), (1, 4, 40), (1, 12, 78)]
    costs = fit_costs(counts, [5.0, 2.0, 3.0])
    assert min(costs) >= 0
    assert np.dot(counts[-1], costs) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "scaffold", "engine": "sequential"},
        {"method": "local_ce", "evaluation.protocol": "gapa", "partition": "shards", "test_split": "matched"},
        {"evaluation.on": "validation", "evaluation.every": 2, "evaluation.diagnostics_every": 4},
    ],
    ids=["side by side", "client state", "personal models", "accuracy alone"],
)
def test_a_few_rounds_give_the_speed(changes, monkeypatch, tmp_path):
    monkeypatch.setattr(_timing, "_LONG_ENOUGH_SECONDS", 0.05)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    speed = measure_speed(config_of(**changes))
    costs = (speed.prepare, sum(speed.training), speed.client, speed.round, sum(speed.evaluation), sum(speed.diagnosis))
    assert all(0 < cost < 5 for cost in costs)
    assert (speed.group_size, speed.skip_singletons) == (1 if "engine" in changes else 32, False)
    assert list(tmp_path.iterdir()) == [], "trials leave nothing behind"


def test_cohorts_of_other_sizes_and_other_engines_are_timed_separately(monkeypatch):
    timed = []

    def timing(config):
        timed.append((config.federation.clients_per_round, config.general.engine))
        return Speed(1.0, 0.0, (0.0, 0.0, 0.0), 0.0, 0.0, 0.0, (0.0, 0.0), (0.0, 0.0))

    monkeypatch.setattr(_estimate, "measure_speed", timing)
    changes = [{}, {"seed": 2}, {"clients_per_round": 5}, {"engine": "sequential"}, {"lr": 0.5}]
    told = []
    found = estimate_cost([(config_of(**change), 0) for change in changes], told.append, told.append)
    assert timed == [(10, "auto"), (5, "auto"), (10, "sequential")]
    assert found.timings == 3
    assert found.seconds == pytest.approx(3.0, abs=0.5), "a timing starts once, however many runs it stands for"
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
    assert time_in_words(seconds) == text
