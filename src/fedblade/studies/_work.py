"""How much work a run is: optimiser steps, clients and evaluations, counted from the split before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.lengths import PhasePlan, epoch_batches, phase_steps
from fedblade.core.plan import IntArray, draw_cohorts
from fedblade.core.streams import Streams
from fedblade.data import Dataset
from fedblade.partitions import Parts
from fedblade.presets.names import names_in_papers
from fedblade.runs import MOST_MEASURED, choose_measured, hold_validation, plan_phases, split_clients, stages_after_run


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


def training_split(config: RunConfig, dataset: Dataset) -> Parts:
    """Who trains on what, after test and validation parts are taken out."""
    clients = split_clients(config, dataset)
    return hold_validation(config, clients)[0].train if config.evaluation.on == "validation" else clients.train


def count_work(config: RunConfig, split: Parts, *, skip_singletons: bool, first_round: int = 0) -> Work:
    """The steps of every client in every round from `first_round` (from 0) on."""
    federation = config.federation
    sizes = split.sizes()
    eligible = np.flatnonzero(sizes > 0)
    cohorts = draw_cohorts(
        Streams(config.general.seed), eligible, min(federation.clients_per_round, len(eligible)), federation.rounds
    )[first_round:]
    if config.build_method().participation == "all":
        cohorts = [eligible for _ in cohorts]
    plans = plan_phases(config, config.build_method().phases)
    measured = choose_measured(config.general.seed, eligible)
    tuned = _steps(config, sizes[measured], _tuning(config), skip_singletons=skip_singletons)
    total, longest = int(tuned.sum()), int(tuned.max(initial=0))
    for offset, cohort in enumerate(cohorts):
        held = sizes[cohort]
        if split.removal is not None:
            held = np.array([len(split.indices(int(client), first_round + offset)) for client in cohort])
        steps = _steps(config, held, plans, skip_singletons=skip_singletons)
        total += int(steps.sum())
        longest += int(steps.max(initial=0))
    evaluations = _evaluations(config, first_round, len(measured))
    return Work(total, longest, sum(len(cohort) for cohort in cohorts), evaluations, exact=True)


def guess_work(config: RunConfig, first_round: int = 0) -> Work | None:
    """The steps if all clients were equally large, for data that are not on this machine; None if nobody knows."""
    samples = names_in_papers()["train_samples"].get(config.dataset.name)
    if samples is None:
        return None
    federation = config.federation
    kept = 0.7 if config.dataset_settings.test_split == "holdout" else 1.0
    held = np.array([int(samples * kept) // federation.num_clients])
    method = config.build_method()
    steps = int(_steps(config, held, plan_phases(config, method.phases), skip_singletons=False)[0])
    tuning = int(_steps(config, held, _tuning(config), skip_singletons=False)[0])
    rounds = federation.rounds - first_round
    clients = rounds * (federation.num_clients if method.participation == "all" else federation.clients_per_round)
    measured = min(federation.num_clients, MOST_MEASURED)
    evaluations = _evaluations(config, first_round, measured)
    return Work(clients * steps + measured * tuning, rounds * steps + tuning, clients, evaluations, exact=False)


def _tuning(config: RunConfig) -> tuple[PhasePlan, ...]:
    """The phases of all stages that every client goes through after the run, before its own model is measured."""
    stages = stages_after_run(config.build_method(), config.evaluation.protocol) or ()
    return tuple(plan for phases in stages for plan in plan_phases(config, phases))


def _steps(config: RunConfig, held: IntArray, plans: Sequence[PhasePlan], *, skip_singletons: bool) -> IntArray:
    """Steps of all phases together for clients that hold so many samples each."""
    local = config.local
    batches, _ = epoch_batches(held, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
    return sum((phase_steps(plan, batches) for plan in plans), np.zeros_like(batches))


def _evaluations(config: RunConfig, first_round: int, clients: int) -> int:
    """Passes over the test set; without a global model every client's own is measured."""
    rounds, every = config.federation.rounds, config.evaluation.every
    models = clients if config.build_method().accuracy_of == "personal" else 1
    return models * sum((r + 1) % every == 0 or r + 1 == rounds for r in range(first_round, rounds))
