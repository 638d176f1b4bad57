"""How fast this machine is at a run: a client's step, its round and an evaluation, from a short trial."""

import time
from dataclasses import dataclass, replace

from fedblade.config.run_config import ChosenPart, RunConfig
from fedblade.core.cohort import Cohort
from fedblade.core.registry import partitions
from fedblade.core.state import MemoryStore
from fedblade.core.timeline import wait_for
from fedblade.data import Dataset
from fedblade.engines.stacked import GROUP_SIZE
from fedblade.runs import Setup, Work, find_device, prepare

_PROBE_BATCHES = 3
_PROBE_CLIENTS = 8
_PROBE_TEST = (64, 256)
_SLOW = 0.5
"""Seconds after which a trial is long enough for the clock, so that a longer one would only keep people waiting."""
_LIMIT = 5.0
"""Seconds of a first step after which there is no second one."""
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
    most = GROUP_SIZE if find_device(config.general.device).type == "cuda" else _PROBE_CLIENTS
    everyone = config.build_method().participation == "all"
    cohort = min(clients, most, config.federation.num_clients if everyone else config.federation.clients_per_round)
    even = replace(
        config,
        partition=ChosenPart("iid", partitions.get("iid"), {}),
        federation=config.federation.model_copy(
            update={"num_clients": clients, "clients_per_round": cohort, "rounds": 1}
        ),
        dataset_settings=config.dataset_settings.model_copy(update={"test_split": "global"}),
    )
    setup = prepare(even, dataset)
    alone, rest = _time_steps(setup, 1)
    # One after another, a client tells as much as all of them, and on a CPU so does one whose step is slow.
    slow = alone > _SLOW and not setup.test_order.is_cuda
    together = 1 if setup.engine.name == "sequential" or slow else cohort
    whole, rest = _time_steps(setup, together) if together > 1 else (alone, rest)
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
    if setup.test_order.is_cuda:
        # What a GPU compiles and records for either trial is paid for once in a run.
        _train(setup, clients, 1)
        _train(setup, clients, _PROBE_BATCHES)
        short, few = _train(setup, clients, 1)
    else:
        # The first step is slower than the others, which only matters as long as a second one is cheap.
        for limit in (_LIMIT, _SLOW):
            short, few = _train(setup, clients, 1)
            if short > limit:
                return clients * short / max(few, 1), 0.0
    long, many = _train(setup, clients, _PROBE_BATCHES)
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
    # On a GPU the first call compiles, and a few samples take as long as many.
    sizes = (len(setup.test_order),) * 2 if setup.test_order.is_cuda else _PROBE_TEST
    for size in sizes:
        some = setup.test_order[:size]
        wait_for(some.device)
        began = time.perf_counter()
        setup.engine.measure(setup.start, setup.test, some, passes)
        wait_for(some.device)
        seconds = time.perf_counter() - began
        if seconds > _SLOW and not some.is_cuda:
            break
    return seconds * len(setup.test_order) / len(some)
