"""How much work a run is: local steps, clients and evaluations, counted from the split before the run starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.lengths import PhasePlan, epoch_batches, phase_steps
from fedblade.core.plan import IntArray
from fedblade.core.streams import Streams
from fedblade.partitions import Parts
from fedblade.presets.names import names_in_papers
from fedblade.runs._cohorts import Cohorts, hold_unseen
from fedblade.runs._setup import plan_phases
from fedblade.runs._split import MAX_EVALUATED_CLIENTS, choose_evaluated_clients
from fedblade.runs._tuning import tuning_stages


@dataclass(frozen=True)
class Work:
    """The work that a run still has to do. `exact` is False if the clients' sizes are a guess.

    `client_steps` counts the local steps of all clients. Clients train in `groups`, side by side: `group_steps` counts,
    over all groups, the steps of the group's longest client only. `evaluations` measure the accuracy alone, `diagnoses`
    measure all metrics; both are numbers of rounds. `models` are the models that such a round measures. `final_passes`
    are passes over the test set after the last round.
    """

    client_steps: int
    exact: bool = True
    rounds: int = 0
    groups: int = 0
    group_steps: int = 0
    client_rounds: int = 0
    evaluations: int = 0
    diagnoses: int = 0
    models: int = 1
    final_passes: int = 0


def count_work(
    config: RunConfig,
    split: Parts,
    *,
    skip_singletons: bool,
    group_size: int = 1,
    first_round: int = 0,
    diagnostics_every: int | None = None,
) -> Work:
    """Count the work from round `first_round` (counted from 0) on, in groups of at most `group_size` clients.

    All steps of a client are counted, also where `federation.partial_work` leaves some of them out.
    `diagnostics_every` is that of the set-up; without it, "auto" counts as every round.
    """
    method, sizes = config.build_method(), split.sizes()
    with_data = np.flatnonzero(sizes > 0)
    cohorts = _cohorts(config, sizes, with_data)[first_round:]
    plans = plan_phases(config, method.phases)
    evaluated = choose_evaluated_clients(config.general.seed, with_data)
    stages = tuning_stages(method, config.evaluation.protocol)
    tuned = _steps(config, sizes[evaluated], _tuning_plans(config), skip_singletons=skip_singletons)
    steps = [tuned] if stages else []
    for offset, cohort in enumerate(cohorts):
        samples = _samples(split, sizes, cohort, first_round + offset)
        steps.append(_steps(config, samples, plans, skip_singletons=skip_singletons))
    evaluations, diagnoses = _evaluations(config, first_round, diagnostics_every)
    return Work(
        client_steps=sum(int(of_clients.sum()) for of_clients in steps),
        rounds=len(cohorts),
        groups=sum(-(-len(of_clients) // group_size) for of_clients in steps),
        group_steps=sum(steps_of_groups(of_clients, group_size) for of_clients in steps),
        client_rounds=sum(map(len, cohorts)),
        evaluations=evaluations,
        diagnoses=diagnoses,
        models=len(evaluated) if method.accuracy_of == "personal" else 1,
        final_passes=0 if stages is None else max(1, len(stages)) * _test_sets(config, len(evaluated)),
    )


def _cohorts(config: RunConfig, sizes: IntArray, with_data: IntArray) -> list[IntArray]:
    """The clients that answer in each round, as far as it is known before the run."""
    unseen = hold_unseen(Streams(config.general.seed), config.federation.unseen, with_data)
    cohorts = Cohorts.of(config, config.build_method(), np.setdiff1d(with_data, unseen), lambda: sizes)
    return [cohorts.answering(round_, cohort) for round_, cohort in enumerate(cohorts.planned())]


def _test_sets(config: RunConfig, clients: int) -> int:
    """How many times the test set is passed when the personal models of `clients` clients are measured once."""
    return clients if config.dataset_settings.test_split == "global" else 1


def _samples(split: Parts, sizes: IntArray, cohort: IntArray, round_: int) -> IntArray:
    """The training samples of the clients of a round."""
    if split.removal is None:
        return sizes[cohort]
    return np.array([len(split.indices(int(client), round_)) for client in cohort])


def steps_of_groups(steps: Sequence[int] | IntArray, group_size: int) -> int:
    """The steps of the longest clients of all groups; clients with most steps are in the first group."""
    return int(np.sort(steps)[::-1][::group_size].sum())


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
    return Work(clients * steps + evaluated * tuning, exact=False)


def _tuning_plans(config: RunConfig) -> tuple[PhasePlan, ...]:
    """The phases in which clients tune their personal models after the last round, of all stages."""
    stages = tuning_stages(config.build_method(), config.evaluation.protocol) or ()
    return tuple(plan for phases in stages for plan in plan_phases(config, phases))


def _steps(config: RunConfig, samples: IntArray, plans: Sequence[PhasePlan], *, skip_singletons: bool) -> IntArray:
    """Steps of all phases together, for clients with `samples` samples each."""
    local = config.local
    batches, _ = epoch_batches(samples, local.batch_size, local.last_batch, skip_singletons=skip_singletons)
    return sum((phase_steps(plan, batches) for plan in plans), np.zeros_like(batches))


def _evaluations(config: RunConfig, first_round: int, diagnostics_every: int | None) -> tuple[int, int]:
    """The numbers of rounds that measure the accuracy alone, and of those that measure all metrics."""
    last, chosen = config.federation.rounds, config.evaluation
    if diagnostics_every is None:
        diagnostics_every = 1 if chosen.diagnostics_every == "auto" else chosen.diagnostics_every
    measured = [r for r in range(first_round + 1, last + 1) if r % chosen.every == 0 or r == last]
    diagnosed = [r for r in measured if r % diagnostics_every == 0 or r == last]
    return len(measured) - len(diagnosed), len(diagnosed)
