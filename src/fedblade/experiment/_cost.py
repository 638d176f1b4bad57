"""What runs will cost before they start: optimiser steps counted from the split, seconds from a few timed steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedblade.core.cohort import Cohort
from fedblade.core.errors import Misconfigured
from fedblade.core.phase import Phase
from fedblade.core.plan import IntArray, LastBatch, draw_cohorts
from fedblade.core.registry import partitions
from fedblade.core.state import MemoryStore
from fedblade.core.streams import Streams
from fedblade.data import Dataset
from fedblade.experiment._config import Chosen, RunConfig
from fedblade.experiment._personal import stages_after_run
from fedblade.experiment._presets import names_in_papers
from fedblade.experiment._setup import (
    MOST_MEASURED,
    Setup,
    choose_measured,
    find_device,
    hold_validation,
    prepare,
    split_clients,
)
from fedblade.partitions import Parts

_PROBE_BATCHES = 3
_PROBE_CLIENTS = 8
_PROBE_TEST = 256
_PROBE_RATE = 1e-6
"""A step takes as long at any rate, and at this one nothing can diverge."""


@dataclass(frozen=True)
class Work:
    """The work of a run that is left to do. `exact` is False where sizes were guessed instead of counted."""

    client_steps: int
    client_rounds: int
    evaluations: int
    exact: bool


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine: of a step on a full batch, of a client's round besides steps, of an evaluation."""

    step: float
    client: float
    evaluation: float

    def seconds(self, work: Work) -> float:
        """Estimated time of a run."""
        parts = (work.client_steps * self.step, work.client_rounds * self.client, work.evaluations * self.evaluation)
        return sum(parts)


def epoch_steps(samples: IntArray, batch_size: int, last_batch: LastBatch, *, skip_singletons: bool) -> IntArray:
    """Steps of one epoch for clients with so many samples each."""
    full, short = samples // batch_size, samples % batch_size
    if last_batch == "drop":
        kept = np.zeros_like(full)
    else:
        kept = (short > 0).astype(np.int64)
        if skip_singletons and last_batch == "keep":
            kept -= short == 1
    # A batch of one can only be a full batch where batches have one sample.
    return full * int(not (skip_singletons and batch_size == 1)) + kept


def training_split(config: RunConfig, dataset: Dataset) -> Parts:
    """Who trains on what, after test and validation parts are taken out."""
    clients = split_clients(config, dataset)
    return hold_validation(config, clients)[0].train if config.evaluation.on == "validation" else clients.train


def count_work(config: RunConfig, split: Parts, *, skip_singletons: bool, first_round: int = 0) -> Work:
    """The steps of every client in every round from `first_round` (from 0) on."""
    federation, local = config.federation, config.local
    sizes = split.sizes()
    eligible = np.flatnonzero(sizes > 0)
    cohorts = draw_cohorts(
        Streams(config.general.seed), eligible, min(federation.clients_per_round, len(eligible)), federation.rounds
    )[first_round:]
    if config.build_method().participation == "all":
        cohorts = [eligible for _ in cohorts]
    epochs = num_epochs(config)
    measured = choose_measured(config.general.seed, eligible)
    tuned = epoch_steps(sizes[measured], local.batch_size, local.last_batch, skip_singletons=skip_singletons)
    total = tuning_epochs(config) * int(tuned.sum())
    for offset, cohort in enumerate(cohorts):
        held = sizes[cohort]
        if split.removal is not None:
            held = np.array([len(split.indices(int(client), first_round + offset)) for client in cohort])
        steps = epoch_steps(held, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
        total += epochs * int(steps.sum())
    evaluations = _evaluations(config, first_round, len(measured))
    return Work(total, sum(len(cohort) for cohort in cohorts), evaluations, exact=True)


def guess_work(config: RunConfig, first_round: int = 0) -> Work | None:
    """The steps if all clients were equally large, for data that are not on this machine; None if nobody knows."""
    samples = names_in_papers()["train_samples"].get(config.dataset.name)
    if samples is None:
        return None
    federation, local = config.federation, config.local
    kept = 0.7 if config.dataset_settings.test_split == "holdout" else 1.0
    held = np.array([int(samples * kept) // federation.num_clients])
    steps = int(epoch_steps(held, local.batch_size, local.last_batch, skip_singletons=False)[0])
    everyone = config.build_method().participation == "all"
    cohort = federation.num_clients if everyone else federation.clients_per_round
    clients = (federation.rounds - first_round) * cohort
    measured = min(federation.num_clients, MOST_MEASURED)
    epochs = clients * num_epochs(config) + measured * tuning_epochs(config)
    evaluations = _evaluations(config, first_round, measured)
    return Work(epochs * steps, clients, evaluations, exact=False)


def num_epochs(config: RunConfig) -> int:
    """Passes over its data that a client makes in a round, all phases of the method together."""
    return _total_epochs(config, config.build_method().phases)


def tuning_epochs(config: RunConfig) -> int:
    """Passes over its data that every client makes after the run, before its own model is measured."""
    stages = stages_after_run(config.build_method(), config.evaluation.protocol) or ()
    return sum(_total_epochs(config, phases) for phases in stages)


def _total_epochs(config: RunConfig, phases: tuple[Phase, ...]) -> int:
    return sum(config.local.epochs if phase.epochs is None else phase.epochs for phase in phases)


def probe(config: RunConfig, dataset: Dataset) -> tuple[Speed, bool]:
    """Time a few steps of a run on full batches; also says whether the model must skip batches of one sample.

    The split does not matter for this and can be slow to draw, so clients get equal parts.
    """
    clients = max(1, len(dataset.train) // (config.local.batch_size * _PROBE_BATCHES))
    # A GPU trains a cohort side by side, so that only a whole one tells what a client takes.
    most = clients if find_device(config.general.device).type == "cuda" else _PROBE_CLIENTS
    cohort = min(clients, config.federation.clients_per_round, most)
    even = replace(
        config,
        partition=Chosen("iid", partitions.get("iid"), {}),
        federation=config.federation.model_copy(
            update={"num_clients": clients, "clients_per_round": cohort, "rounds": 1}
        ),
        dataset_settings=config.dataset_settings.model_copy(update={"test_split": "global"}),
    )
    setup = prepare(even, dataset)
    # One after another, a client tells as much as all of them.
    trained = 1 if setup.engine.name == "sequential" else cohort
    _train(setup, trained, 1)
    if setup.test_order.is_cuda:
        # What a GPU compiles and records for the longer trial is paid for once in a run.
        _train(setup, trained, _PROBE_BATCHES)
    (short, few), (long, many) = _train(setup, trained, 1), _train(setup, trained, _PROBE_BATCHES)
    # Where the clock is noisier than a step is long, the mean over the longer trial is the safer number.
    step = (long - short) / (many - few) if long > short and many > few else long / max(many, 1)
    client = max(0.0, short - few * step) / trained
    return Speed(step, client, _evaluate(setup)), setup.problem.network.skips_singletons


def _train(setup: Setup, clients: int, batches: int) -> tuple[float, int]:
    """Seconds of a round of the first clients that is cut to so many batches per phase, and the steps in it."""
    phases = tuple(replace(phase, steps=min(batches, phase.steps or batches)) for phase in setup.planner.phases)
    cut = Cohort(setup.planner, 0, tuple(range(clients)), phases)
    began = time.perf_counter()
    setup.engine.train(setup.start, cut, MemoryStore(), _PROBE_RATE, lambda _: None)
    return time.perf_counter() - began, sum(task.num_steps for task in cut)


def _evaluate(setup: Setup) -> float:
    passes = tuple({each.name: each for metric in setup.metrics for each in metric.passes}.values())
    some = setup.test_order[:_PROBE_TEST]
    began = time.perf_counter()
    setup.engine.measure(setup.start, setup.test, some, passes)
    return (time.perf_counter() - began) * len(setup.test_order) / len(some)


def _evaluations(config: RunConfig, first_round: int, clients: int) -> int:
    """Passes over the test set; without a global model every client's own is measured."""
    rounds, every = config.federation.rounds, config.evaluation.every
    models = clients if config.build_method().accuracy_of == "personal" else 1
    return models * sum((r + 1) % every == 0 or r + 1 == rounds for r in range(first_round, rounds))


@dataclass(frozen=True)
class Estimate:
    """The cost of several runs together, and the data sets that are not on this machine, with what to do."""

    client_steps: int
    seconds: float | None
    exact: bool
    unknown: int
    absent: dict[str, str]

    def sentence(self) -> str:
        """The cost in one line."""
        steps = f"{'' if self.exact else 'about '}{self.client_steps:,} client-steps"
        if not self.exact:
            steps += " (guessed from the sizes of data sets that are not here)"
        if self.unknown:
            steps += f", and {self.unknown} runs of unknown size"
        return steps if self.seconds is None else f"{steps}, about {duration(self.seconds)} on this machine"


def estimate(runs: Sequence[tuple[RunConfig, int]]) -> Estimate:
    """The cost of runs, each given with the rounds it has behind it. Data sets are loaded one after another."""
    by_data: dict[str, list[tuple[RunConfig, int]]] = {}
    for config, done in runs:
        by_data.setdefault(repr((config.dataset.name, config.dataset.knobs)), []).append((config, done))
    works: list[Work | None] = []
    seconds = 0.0
    absent: dict[str, str] = {}
    for group in by_data.values():
        name = group[0][0].dataset.name
        try:
            dataset = group[0][0].dataset.make()
        except Misconfigured as error:
            absent[name] = str(error)
            works += [guess_work(config, done) for config, done in group]
            continue
        for work, speed in _with_data(group, dataset):
            works.append(work)
            seconds += speed.seconds(work)
    known = [work for work in works if work is not None]
    return Estimate(
        client_steps=sum(work.client_steps for work in known),
        seconds=None if absent else seconds,
        exact=all(work.exact for work in known),
        unknown=len(works) - len(known),
        absent=absent,
    )


def _with_data(runs: Sequence[tuple[RunConfig, int]], dataset: Dataset) -> list[tuple[Work, Speed]]:
    """Work and speed of runs on one data set; splits and trials are shared between runs that agree in them."""
    splits: dict[str, Parts] = {}
    speeds: dict[str, tuple[Speed, bool]] = {}
    found: list[tuple[Work, Speed]] = []
    for config, done in runs:
        table = config.table()
        split_key = repr(
            (
                table["partition"],
                table["dataset"],
                table["federation"]["num_clients"],
                config.evaluation.on,
                table["seed"],
            )
        )
        if split_key not in splits:
            splits[split_key] = training_split(config, dataset)
        speed_key = repr((table["model"], table["method"], config.local.batch_size, config.general.device))
        if speed_key not in speeds:
            speeds[speed_key] = probe(config, dataset)
        speed, skips = speeds[speed_key]
        found.append((count_work(config, splits[split_key], skip_singletons=skips, first_round=done), speed))
    return found


def duration(seconds: float) -> str:
    """A time in the unit a person would use."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
