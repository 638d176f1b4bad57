"""Start and round of methods with a simplex ETF, as the number of classes grows."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.benchmark import Case, Options, Result, at_most
from benchmarks.timing import alternate, median, one_thread, paired_ratios
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.data import Dataset, as_dataset
from fedblade.heads import simplex_etf
from fedblade.runs import Driver, RunListener, Setup, load_config, prepare

_SETTING = "512 samples of noise, an MLP with 64 features, 2 of 4 clients, batch 64, one thread"
START = Case(
    "FedETF 4,000 over 2,000 classes", f"start of a run from its data to the first round: {_SETTING}", at_most(4)
)
LARGE_START = Case("FedETF 10,000 classes", START.what, at_most(5), "s")
FRAME = Case(
    "simplex ETF of 10,000 classes", "`simplex_etf` with as many dimensions as classes, one thread", at_most(5), "s"
)
ROUND = Case(
    "FedBlade 4,000 over 1,000 classes", f"training in a round with prototypes, no evaluation: {_SETTING}", at_most(8)
)
LARGE_ROUND = Case("FedBlade 8,000 over 2,000 classes", ROUND.what, at_most(8))


def noise(classes: int, samples: int, features: int = 32) -> Dataset:
    """Samples of normal noise whose labels take turns; not every class needs a sample."""
    inputs = np.random.default_rng(0).standard_normal((samples, features)).astype(np.float32)
    labels = np.arange(samples) % classes
    labels[-1] = classes - 1
    named = np.arange(classes)
    # Every class has a test sample, so that the number of classes is known.
    return as_dataset((inputs, labels, inputs[np.arange(classes) % samples], named))


def started(method: str, classes: int, rounds: int = 4) -> Setup:
    """A run on noise that is ready to start."""
    settings = {
        "method": method, "model": "mlp", "model.dim": 64, "partition": "iid", "num_clients": 4, "clients_per_round": 2,
        "rounds": rounds, "epochs": 1, "batch_size": 64, "lr": 0.02, "evaluation.every": rounds,
        "evaluation.metrics": ["accuracy"], "engine": "sequential", "device": "cpu",
    }  # fmt: skip
    return prepare(load_config("quickstart", settings)[0], noise(classes, 512))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def round_seconds(setup: Setup) -> float:
    """The median of the rounds that have prototypes; the second round warms up their terms."""
    driver = Driver(setup, None, RunListener())
    driver.run()
    return median([record["seconds"] for record in driver.history[2:]])


def measure_start(options: Options, few: int, many: int) -> Result:
    """The start with both numbers of classes, taking turns. The first start warms up."""
    return _grown(options, few, many, lambda classes: _seconds(partial(started, "fedetf", classes)), "s")


def measure_round(options: Options, few: int, many: int) -> Result:
    """Rounds with both numbers of classes, taking turns."""
    return _grown(options, few, many, lambda classes: round_seconds(started("fedblade", classes)), "s/round")


def measure_seconds(options: Options, work: Callable[[], object]) -> Result:
    """The seconds of some work."""
    options.require_cpu()
    with one_thread():
        seconds = [_seconds(work) for _ in range(options.repetitions(3))]
    return Result(median(seconds), {"s": median(seconds)}, seconds)


def _grown(options: Options, few: int, many: int, seconds: Callable[[int], float], unit: str) -> Result:
    options.require_cpu()
    with one_thread():
        seconds(few)
        large, small = alternate([lambda: seconds(many), lambda: seconds(few)], options.repetitions(3))
    ratios = paired_ratios(large, small)
    medians = {f"{many:,} classes {unit}": median(large), f"{few:,} classes {unit}": median(small)}
    return Result(median(ratios), medians, ratios)


ROWS = (
    GrowthRow(START, partial(measure_start, few=2_000, many=4_000)),
    GrowthRow(LARGE_START, partial(measure_seconds, work=partial(started, "fedetf", 10_000))),
    GrowthRow(FRAME, partial(measure_seconds, work=partial(simplex_etf, 10_000, 10_000))),
    GrowthRow(ROUND, partial(measure_round, few=1_000, many=4_000)),
    GrowthRow(LARGE_ROUND, partial(measure_round, few=2_000, many=8_000)),
)
