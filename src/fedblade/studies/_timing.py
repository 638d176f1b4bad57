"""How fast this machine is: seconds of a client's step, of its round and of an evaluation, from a few timed steps."""

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

_BATCHES = 3
_CPU_CLIENTS = 8
_TEST_SAMPLES = (64, 256)
_LONG_ENOUGH_SECONDS = 0.5
"""A measurement of this length is precise enough; a longer one would only make people wait."""
_LIMIT_SECONDS = 5.0
"""If the first step takes longer, there is no second one."""
_LEARNING_RATE = 1e-6
"""The rate does not change the time of a step, and with this rate nothing diverges."""


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine, measured with `together` clients side by side.

    A step of several clients side by side takes `shared` seconds, however few they are, and `step` seconds more per
    client. `client` are the seconds of a client's round without its steps, `evaluation` those of a pass over the test
    set.
    """

    step: float
    shared: float
    client: float
    evaluation: float
    together: int = 1

    def seconds(self, work: Work) -> float:
        """The estimated time of a run."""
        # A round has at least as many steps as its longest client, and a step has room for `together` clients.
        steps_side_by_side = max(work.longest_steps, work.client_steps / self.together)
        return (
            steps_side_by_side * self.shared
            + work.client_steps * self.step
            + work.client_rounds * self.client
            + work.evaluations * self.evaluation
        )


def measure_speed(config: RunConfig, dataset: Dataset) -> tuple[Speed, bool]:
    """Time a few steps on full batches; also says whether the model skips batches of one sample.

    The split does not change the time of a full batch and can be slow to draw, so clients get equal parts.
    """
    num_clients = max(1, len(dataset.train) // (config.local.batch_size * _BATCHES))
    # A GPU trains many clients side by side: a few of them would not show the time of one.
    most = GROUP_SIZE if find_device(config.general.device).type == "cuda" else _CPU_CLIENTS
    federation = config.federation
    everyone = config.build_method().participation == "all"
    cohort = min(num_clients, most, federation.num_clients if everyone else federation.clients_per_round)
    sizes = {"num_clients": num_clients, "clients_per_round": cohort, "rounds": 1}
    equal_parts = replace(
        config,
        partition=ChosenPart("iid", partitions.get("iid"), {}),
        federation=federation.model_copy(update=sizes),
        dataset_settings=config.dataset_settings.model_copy(update={"test_split": "global"}),
    )
    setup = prepare(equal_parts, dataset)
    alone, rest = _time_steps(setup, 1)
    # One client is enough for an engine that trains clients one after another, and for a slow step on a CPU.
    slow = alone > _LONG_ENOUGH_SECONDS and not setup.test_order.is_cuda
    together = 1 if setup.engine.name == "sequential" or slow else cohort
    whole, rest = _time_steps(setup, together) if together > 1 else (alone, rest)
    step, shared = _fit_line(alone, whole, together)
    return Speed(
        step, shared, rest / together, _time_evaluation(setup), together
    ), setup.problem.network.skips_singletons


def _fit_line(alone: float, whole: float, together: int) -> tuple[float, float]:
    """Seconds per client and shared seconds of a step, from the step of one client and of `together` clients.

    This is the straight line through both measurements; a noisy clock must not make a part of it negative.
    """
    step = (whole - alone) / (together - 1) if together > 1 else whole
    step = min(max(step, 0.0), whole / together)
    return step, whole - together * step


def _time_steps(setup: Setup, clients: int) -> tuple[float, float]:
    """Seconds of one step of so many clients side by side, and of their round without steps."""
    if setup.test_order.is_cuda:
        # A run compiles and captures once, so both lengths are trained once before they are timed.
        _train(setup, clients, 1)
        _train(setup, clients, _BATCHES)
        short, few = _train(setup, clients, 1)
    else:
        # The first step is slower than the others, which only matters as long as a second one is cheap.
        for limit in (_LIMIT_SECONDS, _LONG_ENOUGH_SECONDS):
            short, few = _train(setup, clients, 1)
            if short > limit:
                return clients * short / max(few, 1), 0.0
    long, many = _train(setup, clients, _BATCHES)
    # If the clock is noisier than a step is long, the mean over the longer training is the safer number.
    step = (long - short) / (many - few) if long > short and many > few else long / max(many, 1)
    return clients * step, max(0.0, short - few * step)


def _train(setup: Setup, clients: int, batches: int) -> tuple[float, int]:
    """Seconds and steps of a round of the first clients, with at most so many batches per phase."""
    phases = tuple(replace(phase, steps=min(batches, phase.steps or batches)) for phase in setup.planner.phases)
    cohort = Cohort(setup.planner, 0, tuple(range(clients)), phases)
    began = time.perf_counter()
    setup.engine.train(setup.start, cohort, MemoryStore(), _LEARNING_RATE, lambda _: None)
    wait_for(setup.test_order.device)
    return time.perf_counter() - began, sum(task.num_steps for task in cohort)


def _time_evaluation(setup: Setup) -> float:
    """Seconds of a pass over the test set."""
    passes = tuple({data_pass.name: data_pass for metric in setup.metrics for data_pass in metric.passes}.values())
    # On a GPU the first call compiles, and a few samples take as long as many.
    sizes = (len(setup.test_order),) * 2 if setup.test_order.is_cuda else _TEST_SAMPLES
    for size in sizes:
        samples = setup.test_order[:size]
        wait_for(samples.device)
        began = time.perf_counter()
        setup.engine.measure(setup.start, setup.test, samples, passes)
        wait_for(samples.device)
        seconds = time.perf_counter() - began
        if seconds > _LONG_ENOUGH_SECONDS and not samples.is_cuda:
            break
    return seconds * len(setup.test_order) / len(samples)
