"""How fast this machine is at a run: seconds of the run's parts, from short trials of the run itself."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedblade.config.run_config import RunConfig
from fedblade.runs import Setup, Work, prepare
from fedblade.studies._trial import LIMIT_SECONDS, Part, Trial, group_size, try_part, whole_round

_LONG_ENOUGH_SECONDS = 1.0
"""A measurement of this length is precise enough; a longer one would only make people wait."""
_FEW_SAMPLES = 64
_FEW_STEPS = 4
_GROWTH = 4
_SIMPLER = 0.01
"""Fewer costs are taken if the sum of squared relative errors grows by less."""


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine, and how work is counted for them: groups, batches that are skipped, diagnosed rounds.

    `start` comes once, `prepare` once in a run. `training` has the seconds of a group, of a step of a group and of a
    step of a client. `client` are those of a client's round without its training, `observed` those of diagnostics of a
    trained client, `round` the rest of a round. `evaluation` (the accuracy alone) and `diagnosis` (all metrics) have
    the seconds of a measurement and of a pass over the test set in it.
    """

    start: float
    prepare: float
    training: Sequence[float]
    client: float
    observed: float
    round: float
    evaluation: Sequence[float]
    diagnosis: Sequence[float]
    group_size: int = 1
    skip_singletons: bool = False
    diagnostics_every: int = 1

    def seconds(self, work: Work) -> float:
        """The estimated time of a run, without `start`."""
        alone, all_ = work.evaluations, work.diagnoses
        costs = (
            (self.prepare, 1),
            *zip(self.training, (work.groups, work.group_steps, work.client_steps), strict=True),
            (self.client, work.client_rounds),
            (self.observed, work.client_rounds * all_ / max(1, work.rounds)),
            (self.round, work.rounds),
            *zip(self.evaluation, (alone, alone * work.models + work.final_passes), strict=True),
            *zip(self.diagnosis, (all_, all_ * work.models), strict=True),
        )
        return sum(seconds * count for seconds, count in costs)


def measure_speed(config: RunConfig) -> Speed:
    """Try parts of the run's first round, each larger than the one before, until one lasts long enough or is whole."""
    setup, prepare_seconds, start = _prepared(config)
    trials = [try_part(setup, Part(1, 1, min(_FEW_SAMPLES, len(setup.test_order))))]
    while len(trials) == 1 or trials[-1].seconds < LIMIT_SECONDS:
        if (part := _larger(setup, trials)) == trials[-1].part:
            break
        trials.append(try_part(setup, part))
    if trials[-1].seconds < _LONG_ENOUGH_SECONDS:
        trials.append(try_part(setup, trials[-1].part, _LONG_ENOUGH_SECONDS))
    # The first trial warms up, but of slow rounds it is one of two from which a line can be drawn.
    last, warm, measured = trials[-1], trials[1:], trials[1:] if len(trials) > 2 else trials
    passes = [(1.0, trial.passes) for trial in measured]
    return Speed(
        start=start + sum(trial.warm_up for trial in trials),
        prepare=prepare_seconds,
        training=fit_costs([trial.work for trial in warm], [trial.train for trial in warm]),
        client=last.exchange / last.clients,
        observed=last.observed / last.clients,
        round=last.server + last.save / config.checkpoint.every,
        evaluation=fit_costs(passes, [trial.evaluation for trial in measured]),
        diagnosis=fit_costs(passes, [trial.diagnosis for trial in measured]),
        group_size=group_size(setup),
        skip_singletons=setup.problem.network.skips_singletons,
        diagnostics_every=setup.diagnostics_every,
    )


def fit_costs(counts: Sequence[Sequence[float]], seconds: Sequence[float]) -> Sequence[float]:
    """The cost of every counted thing, never negative, that comes closest to the seconds of all measurements.

    Errors are relative. The last measurement is the largest and is met exactly. Where the measurements hardly tell one
    cost from another, as few things as possible have a cost, and later ones go before earlier ones.
    """
    table, times = np.array(counts, dtype=np.float64), np.maximum(seconds, 1e-9)
    fits: list[tuple[float, NDArray[np.float64]]] = []
    columns = range(table.shape[1])
    for chosen in (subset for size in columns for subset in itertools.combinations(reversed(columns), size + 1)):
        costs = np.zeros(len(columns))
        costs[list(chosen)] = np.linalg.lstsq(table[:, chosen] / times[:, None], np.ones(len(times)), rcond=None)[0]
        if costs.min() >= 0 and table[-1] @ costs > 0:
            fits.append((float(np.square(table @ costs / times - 1).sum()), costs))
    smallest = min(error for error, _ in fits)
    best = next(costs for error, costs in fits if error <= smallest + _SIMPLER)
    return [float(cost) for cost in best * times[-1] / (table[-1] @ best)]


def _prepared(config: RunConfig) -> tuple[Setup, float, float]:
    """A run, the seconds that its set-up takes, and those that the first one in this process took in addition."""
    began = time.perf_counter()
    setup = prepare(config)
    first = time.perf_counter() - began
    if first > LIMIT_SECONDS:
        return setup, first, 0.0
    began = time.perf_counter()
    setup = prepare(config)
    again = time.perf_counter() - began
    return setup, again, max(0.0, first - again)


def _larger(setup: Setup, trials: Sequence[Trial]) -> Part:
    """The next part to try: more steps, then more clients, or all at once if they train side by side."""
    last, whole = trials[-1], whole_round(setup)
    clients, steps, samples = last.part.clients, last.part.steps, last.part.samples
    if last.train < _LONG_ENOUGH_SECONDS / 2:
        if group_size(setup) > 1 and clients < whole.clients and steps >= min(_FEW_STEPS, whole.steps):
            clients = whole.clients
        elif steps < whole.steps:
            steps *= _GROWTH
        else:
            clients *= _GROWTH
    if last.diagnosis - trials[0].diagnosis < _LONG_ENOUGH_SECONDS / 4:
        samples *= _GROWTH
    return Part(min(clients, whole.clients), min(steps, whole.steps), min(samples, whole.samples))
