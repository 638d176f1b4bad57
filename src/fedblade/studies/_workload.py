"""How much work a run is: local steps, clients and evaluations, counted from the split before the run starts."""

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
class Workload:
    """The work that is left of a run. `exact` is False where the sizes of clients were guessed.

    `client_steps` are the steps of all clients, `longest_steps` in every round those of the client with most data: an
    engine that trains clients side by side is busy for so many steps. `client_rounds` counts the clients of all rounds.
    """

    client_steps: int
    longest_steps: int
    client_rounds: int
    evaluations: int
    exact: bool


def training_split(config: RunConfig, dataset: Dataset) -> Parts:
    """The training samples of every client, without test and validation samples."""
    clients = split_clients(config, dataset)
    return hold_validation(config, clients)[0].train if config.evaluation.on == "validation" else clients.train


def count_work(config: RunConfig, split: Parts, *, skip_singletons: bool, first_round: int = 0) -> Workload:
    """Count the steps of every client in every round from `first_round` (from 0) on."""
    federation, method = config.federation, config.build_method()
    sizes = split.sizes()
    eligible = np.flatnonzero(sizes > 0)
    cohorts = draw_cohorts(
        Streams(config.general.seed), eligible, min(federation.clients_per_round, len(eligible)), federation.rounds
    )[first_round:]
    if method.participation == "all":
        cohorts = [eligible for _ in cohorts]
    plans = plan_phases(config, method.phases)
    evaluated = choose_measured(config.general.seed, eligible)
    tuning = _steps(config, sizes[evaluated], _tuning_phases(config), skip_singletons=skip_singletons)
    total, longest = int(tuning.sum()), int(tuning.max(initial=0))
    for round_, cohort in enumerate(cohorts, start=first_round):
        samples = sizes[cohort]
        if split.removal is not None:
            samples = np.array([len(split.indices(int(client), round_)) for client in cohort])
        steps = _steps(config, samples, plans, skip_singletons=skip_singletons)
        total += int(steps.sum())
        longest += int(steps.max(initial=0))
    evaluations = _evaluations(config, first_round, len(evaluated))
    return Workload(total, longest, sum(len(cohort) for cohort in cohorts), evaluations, exact=True)


def guess_work(config: RunConfig, first_round: int = 0) -> Workload | None:
    """The work if all clients had equally many samples, for data that are not on this machine.

    None where the size of the data set is not known either.
    """
    num_samples = names_in_papers()["train_samples"].get(config.dataset.name)
    if num_samples is None:
        return None
    federation, method = config.federation, config.build_method()
    training_share = 0.7 if config.dataset_settings.test_split == "holdout" else 1.0
    samples = np.array([int(num_samples * training_share) // federation.num_clients])
    steps = int(_steps(config, samples, plan_phases(config, method.phases), skip_singletons=False)[0])
    tuning = int(_steps(config, samples, _tuning_phases(config), skip_singletons=False)[0])
    rounds = federation.rounds - first_round
    clients = rounds * (federation.num_clients if method.participation == "all" else federation.clients_per_round)
    evaluated = min(federation.num_clients, MOST_MEASURED)
    evaluations = _evaluations(config, first_round, evaluated)
    return Workload(clients * steps + evaluated * tuning, rounds * steps + tuning, clients, evaluations, exact=False)


def _tuning_phases(config: RunConfig) -> tuple[PhasePlan, ...]:
    """The phases that every client trains after the run, before its personal model is measured."""
    stages = stages_after_run(config.build_method(), config.evaluation.protocol) or ()
    return tuple(plan for phases in stages for plan in plan_phases(config, phases))


def _steps(config: RunConfig, samples: IntArray, plans: Sequence[PhasePlan], *, skip_singletons: bool) -> IntArray:
    """The steps of all phases together, for clients with these numbers of samples."""
    local = config.local
    batches, _ = epoch_batches(samples, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
    return sum((phase_steps(plan, batches) for plan in plans), np.zeros_like(batches))


def _evaluations(config: RunConfig, first_round: int, clients: int) -> int:
    """Passes over the test set; a method without a global model needs one pass for the model of every client."""
    rounds, every = config.federation.rounds, config.evaluation.every
    models = clients if config.build_method().accuracy_of == "personal" else 1
    return models * sum((r + 1) % every == 0 or r + 1 == rounds for r in range(first_round, rounds))
