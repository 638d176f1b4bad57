"""How much work a run is: local steps, clients and evaluations, counted from the split before the run starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.lengths import PhasePlan, epoch_batches, phase_steps
from fedblade.core.plan import IntArray, draw_cohorts
from fedblade.core.streams import Streams
from fedblade.partitions import Parts
from fedblade.presets.names import names_in_papers
from fedblade.runs._setup import plan_phases
from fedblade.runs._split import MAX_EVALUATED_CLIENTS, choose_evaluated_clients
from fedblade.runs._tuning import tuning_stages


@dataclass(frozen=True)
class Work:
    """The work that a run still has to do. `exact` is False if the clients' sizes are a guess.

    `client_steps` counts the local steps of all clients. `longest_steps` counts, over rounds, only those of the client
    with most data: if clients train side by side, the round ends with that client.
    """

    client_steps: int
    longest_steps: int
    client_rounds: int
    evaluations: int
    exact: bool


def count_work(config: RunConfig, split: Parts, *, skip_singletons: bool, first_round: int = 0) -> Work:
    """Count the local steps of every client from round `first_round` (counted from 0) on."""
    federation = config.federation
    sizes = split.sizes()
    eligible = np.flatnonzero(sizes > 0)
    cohorts = draw_cohorts(
        Streams(config.general.seed), eligible, min(federation.clients_per_round, len(eligible)), federation.rounds
    )[first_round:]
    if config.build_method().participation == "all":
        cohorts = [eligible for _ in cohorts]
    plans = plan_phases(config, config.build_method().phases)
    evaluated = choose_evaluated_clients(config.general.seed, eligible)
    tuned = _steps(config, sizes[evaluated], _tuning_plans(config), skip_singletons=skip_singletons)
    total, longest = int(tuned.sum()), int(tuned.max(initial=0))
    for offset, cohort in enumerate(cohorts):
        samples = sizes[cohort]
        if split.removal is not None:
            samples = np.array([len(split.indices(int(client), first_round + offset)) for client in cohort])
        steps = _steps(config, samples, plans, skip_singletons=skip_singletons)
        total += int(steps.sum())
        longest += int(steps.max(initial=0))
    evaluations = _evaluations(config, first_round, len(evaluated))
    return Work(total, longest, sum(len(cohort) for cohort in cohorts), evaluations, exact=True)


def guess_work(config: RunConfig, first_round: int = 0) -> Work | None:
    """The work if all clients had equally many samples, for data that are not on this machine.

    None if the size of the data set is unknown.
    """
    total = names_in_papers()["train_samples"].get(config.dataset.name)
    if total is None:
        return None
    federation = config.federation
    kept = 0.7 if config.dataset_settings.test_split == "holdout" else 1.0
    samples = np.array([int(total * kept) // federation.num_clients])
    method = config.build_method()
    steps = int(_steps(config, samples, plan_phases(config, method.phases), skip_singletons=False)[0])
    tuning = int(_steps(config, samples, _tuning_plans(config), skip_singletons=False)[0])
    rounds = federation.rounds - first_round
    clients = rounds * (federation.num_clients if method.participation == "all" else federation.clients_per_round)
    evaluated = min(federation.num_clients, MAX_EVALUATED_CLIENTS)
    evaluations = _evaluations(config, first_round, evaluated)
    return Work(clients * steps + evaluated * tuning, rounds * steps + tuning, clients, evaluations, exact=False)


def _tuning_plans(config: RunConfig) -> tuple[PhasePlan, ...]:
    """The phases in which clients tune their personal models after the last round, of all stages."""
    stages = tuning_stages(config.build_method(), config.evaluation.protocol) or ()
    return tuple(plan for phases in stages for plan in plan_phases(config, phases))


def _steps(config: RunConfig, samples: IntArray, plans: Sequence[PhasePlan], *, skip_singletons: bool) -> IntArray:
    """Steps of all phases together, for clients with `samples` samples each."""
    local = config.local
    batches, _ = epoch_batches(samples, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
    return sum((phase_steps(plan, batches) for plan in plans), np.zeros_like(batches))


def _evaluations(config: RunConfig, first_round: int, clients: int) -> int:
    """Passes over the test set: one per evaluated round, or one per client if there is no global model."""
    rounds, every = config.federation.rounds, config.evaluation.every
    models = clients if config.build_method().accuracy_of == "personal" else 1
    return models * sum((r + 1) % every == 0 or r + 1 == rounds for r in range(first_round, rounds))
