"""How often a run measures more than accuracy, if `evaluation.diagnostics_every` is "auto".

The rule counts operations and no time, so that a configuration gives the same rows of history on every machine, with
every engine, and after every restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.config.run_config import RunConfig
from fedblade.core.metric import Metric
from fedblade.core.plan import Planner
from fedblade.core.problem import Problem
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum
from fedblade.runs._operations import step_operations

SELDOM = 10
"""Diagnostics that cost much are measured every tenth round, and in the last one."""
_SHARE = 0.1
"""Diagnostics cost little if their operations are at most this share of those of the round's training."""
_LITTLE = 2e10
"""So many operations always cost little: a core does them in about a second."""


@dataclass(frozen=True)
class RoundWork:
    """Operations of a mean round: those of its training, and those of its diagnostics."""

    training: float
    diagnostics: float

    @property
    def rhythm(self) -> int:
        """Every how many rounds diagnostics are measured."""
        return 1 if self.diagnostics <= max(_LITTLE, _SHARE * self.training) else SELDOM


def round_work(
    config: RunConfig, problem: Problem, start: ServerState, planner: Planner, metrics: Sequence[Metric], test: int
) -> RoundWork:
    """The work of a mean round, in which every client has as many samples as the mean.

    `metrics` starts with accuracy, whose pass over the `test` samples is made in any case.
    """
    # A backward pass has twice the operations of a forward pass.
    dim, forward = problem.network.dim, step_operations(problem, start, 1) / 3
    clients, samples = config.federation.clients_per_round, planner.mean_samples
    steps = sum(planner.workload(max(1, round(samples)), planner.phases).steps)
    training = clients * steps * config.local.batch_size * 3 * forward
    others = metrics[1:]
    passed = sum(
        count * _passes_of([sum_ for metric in others if metric.clients == who for sum_ in metric.local], samples, test)
        for who, count in (("all", clients), ("first", 1))
    )
    # Covariances of the features, and their eigenvalues.
    covariances = 4.0 * dim**2 * test + 20.0 * dim**3 if others else 0.0
    return RoundWork(training, passed * forward + covariances)


def diagnostics_rhythm(
    config: RunConfig, problem: Problem, start: ServerState, planner: Planner, metrics: Sequence[Metric], test: int
) -> int:
    """Every how many rounds the run measures all metrics."""
    chosen = config.evaluation.diagnostics_every
    return round_work(config, problem, start, planner, metrics, test).rhythm if chosen == "auto" else chosen


def _passes_of(sums: Sequence[Sum], samples: float, test: int) -> float:
    """Samples that a client passes for these sums. One pass serves all.

    An anchored one counts as two, although the received model passes its samples once for all clients: faster code must
    not change in which rounds a configuration measures.
    """
    measured = [data_pass for declared in sums for data_pass in declared.measured]
    models = (2 if any(data_pass.anchored for data_pass in measured) else 1) if measured else 0
    return models * test + (samples if any(declared.passes for declared in sums) else 0.0)
