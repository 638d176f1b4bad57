"""A trial: rounds of a run with a part of their work, carried out in a temporary folder and timed by stage."""

import contextlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.timeline import OTHER, Timeline
from fedblade.engines.stacked import GROUP_SIZE
from fedblade.results import RunDirectory
from fedblade.runs import Driver, RoundRecord, RunListener, Setup, steps_of_groups

LIMIT_SECONDS = 3.0
"""On a CPU a trial ends after the first round that ends later."""
_LEARNING_RATE = 1e-6
"""The rate does not change the time of a step, and with this rate nothing diverges."""


@dataclass(frozen=True)
class Part:
    """A part of a round: so many clients, steps in each phase, and samples that the model is measured on."""

    clients: int
    steps: int
    samples: int


@dataclass(frozen=True)
class Trial:
    """The work of a round of a trial and its seconds by stage.

    `work` are groups of clients, steps of groups and steps of clients. `passes` over the test set are made in an
    evaluation. `warm_up` is what the first round took in addition, `exchange` the part of a client's round that is no
    training, `observed` the diagnostics of trained clients. `evaluation` measures the accuracy alone, `diagnosis` all
    metrics.
    """

    part: Part
    clients: int
    work: tuple[int, int, int]
    passes: float
    seconds: float
    warm_up: float
    train: float
    exchange: float
    observed: float
    server: float
    save: float
    evaluation: float
    diagnosis: float


def group_size(setup: Setup) -> int:
    """The number of clients that train side by side."""
    return GROUP_SIZE if setup.engine.name == "stacked" else 1


def whole_round(setup: Setup) -> Part:
    """A round with all steps and all test samples, of the clients of one group at most."""
    everything = Part(min(GROUP_SIZE, len(_cohort(setup))), 10**9, len(setup.test_order))
    return replace(everything, steps=max(1, *_steps(_shortened(setup, everything))))


def try_part(setup: Setup, part: Part, at_least: float = 0.0) -> Trial:
    """Do rounds with a part of their work for at least so many seconds; the first one warms up."""
    shortened, timeline = _shortened(setup, part), Timeline()
    least = 1 + shortened.diagnostics_every
    stop = _Stop(least, max(least, setup.config.federation.rounds), at_least, limited=not setup.test_order.is_cuda)
    with tempfile.TemporaryDirectory() as folder, timeline.listen(), contextlib.suppress(_Enough):
        directory = RunDirectory(Path(folder) / "run")
        directory.open(resume=False)
        with contextlib.closing(directory):
            Driver(shortened, directory, stop).run()
    steps, models = _steps(shortened), len(shortened.evaluated_clients)
    size, share = group_size(setup), len(shortened.test_order) / len(setup.test_order)
    return Trial(
        part=part,
        clients=len(steps),
        work=(-(-len(steps) // size), steps_of_groups(steps, size), sum(steps)),
        passes=share * (models if setup.method.accuracy_of == "personal" else 1),
        **_seconds(timeline, shortened.diagnostics_every),
    )


def _seconds(timeline: Timeline, turns: int) -> dict[str, float]:
    """Mean seconds of the rounds after the first, by stage; every `turns`-th round measures all metrics."""
    rounds = timeline.rounds[1:] or timeline.rounds
    stages = [timeline.seconds(round_) for round_ in rounds]
    diagnosed = [round_ for round_ in rounds if round_ % turns == 0] or rounds
    alone = [round_ for round_ in rounds if round_ % turns] or rounds
    first, *later = [_spans(timeline, "round", round_)[0] for round_ in timeline.rounds]

    def mean(*names: str) -> float:
        return fmean(sum(seconds.get(name, 0.0) for name in names) for seconds in stages)

    return {
        "seconds": fmean(later or [first]),
        "warm_up": max(0.0, first - fmean(later or [first])),
        "train": mean("train"),
        "exchange": mean("plan", "load", "sums"),
        "server": mean("server", OTHER),
        "save": mean("save"),
        # The last evaluation of a round is that of the model; those before are of the clients that have trained.
        "observed": fmean(sum(_spans(timeline, "evaluate", round_)[:-1]) for round_ in diagnosed),
        "evaluation": fmean(_spans(timeline, "evaluate", round_)[-1] for round_ in alone),
        "diagnosis": fmean(_spans(timeline, "evaluate", round_)[-1] for round_ in diagnosed),
    }


def _spans(timeline: Timeline, name: str, round_: int) -> Sequence[float]:
    """Seconds of the spans of a stage in a round."""
    return [span.duration_ns / 1e9 for span in timeline.spans if (span.name, span.round) == (name, round_)]


class _Enough(Exception):
    """Ends a trial."""


class _Stop(RunListener):
    """Ends a run when enough rounds have taken long enough, or when they take too long."""

    def __init__(self, least_rounds: int, most_rounds: int, at_least: float, *, limited: bool) -> None:
        self._least, self._most, self._at_least, self._limited = least_rounds, most_rounds, at_least, limited
        self._began = time.perf_counter()

    def on_round(self, record: RoundRecord) -> None:
        """Look at the clock."""
        seconds, done = time.perf_counter() - self._began, record["round"]
        long_enough = done >= self._least and (seconds >= self._at_least or done >= self._most)
        if long_enough or (self._limited and seconds > LIMIT_SECONDS):
            raise _Enough


def _cohort(setup: Setup) -> list[int]:
    """The clients of the first round, those with about as much data as the mean first."""
    cohort = next(setup.cohorts.planned())
    samples = {int(client): len(setup.planner.shards.indices(int(client), 0)) for client in cohort}
    mean = sum(samples.values()) / len(samples)
    return sorted(samples, key=lambda client: abs(samples[client] - mean))


def _steps(setup: Setup) -> list[int]:
    """The steps of the clients of the first round."""
    planner = setup.planner
    sizes = [len(planner.shards.indices(int(client), 0)) for client in next(setup.cohorts.planned())]
    return [sum(planner.workload(size, planner.phases).steps) for size in sizes]


def _shortened(setup: Setup, part: Part) -> Setup:
    """The run with the same part of its first round in every round, and an evaluation after every round.

    Evaluations are in turns with and without diagnostics if the run does both.
    """
    phases = tuple(replace(phase, steps=min(part.steps, phase.steps or part.steps)) for phase in setup.planner.phases)
    config, rounds = _shortened_config(setup.config), setup.config.federation.rounds + 10
    clients = np.sort(_cohort(setup)[: part.clients])
    models = -(-len(setup.evaluated_clients) * part.samples // len(setup.test_order))
    return replace(
        setup,
        diagnostics_every=2 if setup.config.evaluation.every % setup.diagnostics_every else 1,
        config=replace(config, federation=config.federation.model_copy(update={"rounds": rounds})),
        planner=replace(setup.planner, phases=phases, partial_work=0.0),
        cohorts=setup.cohorts.always(clients),
        eligible=clients,
        evaluated_clients=setup.evaluated_clients[:models],
        test_order=setup.test_order[: part.samples],
        test_groups=None if setup.test_groups is None else setup.test_groups[: part.samples],
    )


def _shortened_config(config: RunConfig) -> RunConfig:
    """Evaluations and checkpoints in every round."""
    return replace(
        config,
        optimizer=config.optimizer.model_copy(update={"lr": _LEARNING_RATE}),
        checkpoint=config.checkpoint.model_copy(update={"every": 1}),
        evaluation=config.evaluation.model_copy(update={"every": 1}),
    )
