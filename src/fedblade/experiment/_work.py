"""How much work a run is: optimiser steps, clients and evaluations, counted from the split before it starts."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.phase import Phase
from fedblade.core.plan import IntArray, LastBatch, draw_cohorts
from fedblade.core.streams import Streams
from fedblade.data import Dataset
from fedblade.experiment._config import RunConfig
from fedblade.experiment._personal import stages_after_run
from fedblade.experiment._presets import names_in_papers
from fedblade.experiment._setup import MOST_MEASURED, choose_measured, hold_validation, split_clients
from fedblade.partitions import Parts


@dataclass(frozen=True)
class Work:
    """The work of a run that is left to do. `exact` is False where sizes were guessed instead of counted.

    `longest_steps` are those of the client with most data in each round: side by side, the others are done earlier.
    """

    client_steps: int
    longest_steps: int
    client_rounds: int
    evaluations: int
    exact: bool


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
    total, longest = (tuning_epochs(config) * int(steps) for steps in (tuned.sum(), tuned.max(initial=0)))
    for offset, cohort in enumerate(cohorts):
        held = sizes[cohort]
        if split.removal is not None:
            held = np.array([len(split.indices(int(client), first_round + offset)) for client in cohort])
        steps = epoch_steps(held, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
        total += epochs * int(steps.sum())
        longest += epochs * int(steps.max(initial=0))
    evaluations = _evaluations(config, first_round, len(measured))
    return Work(total, longest, sum(len(cohort) for cohort in cohorts), evaluations, exact=True)


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
    longest = (federation.rounds - first_round) * num_epochs(config) + tuning_epochs(config)
    return Work(epochs * steps, longest * steps, clients, evaluations, exact=False)


def num_epochs(config: RunConfig) -> int:
    """Passes over its data that a client makes in a round, all phases of the method together."""
    return _total_epochs(config, config.build_method().phases)


def tuning_epochs(config: RunConfig) -> int:
    """Passes over its data that every client makes after the run, before its own model is measured."""
    stages = stages_after_run(config.build_method(), config.evaluation.protocol) or ()
    return sum(_total_epochs(config, phases) for phases in stages)


def _total_epochs(config: RunConfig, phases: tuple[Phase, ...]) -> int:
    return sum(config.local.epochs if phase.epochs is None else phase.epochs for phase in phases)


def _evaluations(config: RunConfig, first_round: int, clients: int) -> int:
    """Passes over the test set; without a global model every client's own is measured."""
    rounds, every = config.federation.rounds, config.evaluation.every
    models = clients if config.build_method().accuracy_of == "personal" else 1
    return models * sum((r + 1) % every == 0 or r + 1 == rounds for r in range(first_round, rounds))
