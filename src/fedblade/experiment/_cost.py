"""What runs will cost before they start: their work, and seconds from a few timed steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedblade.core.cohort import Cohort
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.core.state import MemoryStore
from fedblade.core.timeline import wait_for
from fedblade.data import Dataset
from fedblade.engines.stacked import ROWS
from fedblade.experiment._config import Chosen, RunConfig
from fedblade.experiment._setup import Setup, find_device, prepare
from fedblade.experiment._work import Work, count_work, guess_work, training_split
from fedblade.partitions import Parts

_PROBE_BATCHES = 3
_PROBE_CLIENTS = 8
_PROBE_TEST = 256
_PROBE_RATE = 1e-6
"""A step takes as long at any rate, and at this one nothing can diverge."""


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine, from a trial with `together` clients side by side.

    `step` is a client's step on a full batch and `tick` what a step of all takes besides, however few take part, as on
    a GPU where a few clients have much more data than the others. `client` is a client's round besides steps,
    `evaluation` a pass over the test set.
    """

    step: float
    tick: float
    client: float
    evaluation: float
    together: int = 1

    def seconds(self, work: Work) -> float:
        """Estimated time of a run."""
        # At least so many: a step lasts while the longest client of a round does, and has room for so many clients.
        ticks = max(work.longest_steps, work.client_steps / self.together)
        return (
            ticks * self.tick
            + work.client_steps * self.step
            + work.client_rounds * self.client
            + work.evaluations * self.evaluation
        )


def probe(config: RunConfig, dataset: Dataset) -> tuple[Speed, bool]:
    """Time a few steps of a run on full batches; also says whether the model must skip batches of one sample.

    The split does not matter for this and can be slow to draw, so clients get equal parts.
    """
    clients = max(1, len(dataset.train) // (config.local.batch_size * _PROBE_BATCHES))
    # A GPU takes many side by side, so that a few do not tell what a client takes.
    most = ROWS if find_device(config.general.device).type == "cuda" else _PROBE_CLIENTS
    everyone = config.build_method().participation == "all"
    cohort = min(clients, most, config.federation.num_clients if everyone else config.federation.clients_per_round)
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
    together = 1 if setup.engine.name == "sequential" else cohort
    whole, rest = _time_steps(setup, together)
    alone, _ = _time_steps(setup, 1) if together > 1 else (whole, 0.0)
    step, tick = _shares(alone, whole, together)
    return Speed(step, tick, rest / together, _evaluate(setup), together), setup.problem.network.skips_singletons


def _shares(alone: float, whole: float, together: int) -> tuple[float, float]:
    """What a client adds to a step of all, and what a step takes besides, from the step of one client and of all.

    A straight line through both, of which neither part is below zero, however noisy the clock.
    """
    step = (whole - alone) / (together - 1) if together > 1 else whole
    step = min(max(step, 0.0), whole / together)
    return step, whole - together * step


def _time_steps(setup: Setup, clients: int) -> tuple[float, float]:
    """Seconds of a step that so many clients take side by side, and of their round besides steps."""
    _train(setup, clients, 1)
    if setup.test_order.is_cuda:
        # What a GPU compiles and records for the longer trial is paid for once in a run.
        _train(setup, clients, _PROBE_BATCHES)
    (short, few), (long, many) = _train(setup, clients, 1), _train(setup, clients, _PROBE_BATCHES)
    # Where the clock is noisier than a step is long, the mean over the longer trial is the safer number.
    step = (long - short) / (many - few) if long > short and many > few else long / max(many, 1)
    return clients * step, max(0.0, short - few * step)


def _train(setup: Setup, clients: int, batches: int) -> tuple[float, int]:
    """Seconds of a round of the first clients that is cut to so many batches per phase, and the steps in it."""
    phases = tuple(replace(phase, steps=min(batches, phase.steps or batches)) for phase in setup.planner.phases)
    cut = Cohort(setup.planner, 0, tuple(range(clients)), phases)
    began = time.perf_counter()
    setup.engine.train(setup.start, cut, MemoryStore(), _PROBE_RATE, lambda _: None)
    wait_for(setup.test_order.device)
    return time.perf_counter() - began, sum(task.num_steps for task in cut)


def _evaluate(setup: Setup) -> float:
    passes = tuple({each.name: each for metric in setup.metrics for each in metric.passes}.values())
    some = setup.test_order
    if some.is_cuda:
        # On a GPU the first call compiles, and a few samples take as long as many.
        setup.engine.measure(setup.start, setup.test, some, passes)
    else:
        some = some[:_PROBE_TEST]
    wait_for(some.device)
    began = time.perf_counter()
    setup.engine.measure(setup.start, setup.test, some, passes)
    wait_for(some.device)
    return (time.perf_counter() - began) * len(setup.test_order) / len(some)


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
        cohort, general = config.federation.clients_per_round, config.general
        speed_key = repr(
            (table["model"], table["method"], cohort, config.local.batch_size, general.device, general.engine)
        )
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
