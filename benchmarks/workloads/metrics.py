"""`metrics`: what metrics cost, as rounds with metrics over rounds that measure accuracy only."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_least, at_most
from benchmarks.timing import alternate, median, paired_ratios
from fedblade.config.schema import Evaluation
from fedblade.core.registry import metrics
from fedblade.data import status
from fedblade.runs import Driver, RunListener, Setup, execute, load_config, prepare

_WHAT = "rounds of the quickstart preset with their evaluation, over the same with accuracy only"
DEFAULT = Case("the default metrics", f"{_WHAT}: FedBlade", at_most(1.1))
PLAIN = Case("the default metrics, FedAvg", f"{_WHAT}: FedAvg, whose rounds are the shortest", at_most(1.1))
FIRST_RUN = Case(
    "training, first CIFAR-10 run",
    "seconds of training over all seconds of the rounds, evaluation included: the settings of `fedblade run --set "
    "dataset=cifar10`, of whose 40 rounds every tenth has diagnostics; 10 rounds",
    at_least(0.8),
)
EVERY = Case("every metric there is", f"{_WHAT}: FedBlade, local models on all test samples included")


def measure(options: Options, rounds: int = 10, repeat: int = 9, **changes: Any) -> Measured:
    """Seconds per round with different sets of metrics, taking turns."""
    options.require_cpu()
    repetitions = options.repetitions(repeat)
    sets: dict[str, Sequence[str]] = {
        "accuracy": ("accuracy",),
        "default": Evaluation().metrics,
        "every": sorted(metrics.names()),
    }
    settings = {"rounds": rounds, "device": "cpu", **changes}
    plain, default, every = _sides(settings | {"method": "fedblade"}, sets.values(), repetitions)
    yield DEFAULT.label, _compared(plain, "default", default, rounds)
    yield EVERY.label, _compared(plain, "every metric", every, rounds)
    plain, default = _sides(settings | {"method": "fedavg"}, (sets["accuracy"], sets["default"]), repetitions)
    yield PLAIN.label, _compared(plain, "default", default, rounds)


def measure_first_run(options: Options, dataset: str = "cifar10", rounds: int = 10, **changes: Any) -> Measured:
    """The share of a run that is training, with the metrics and the rhythm that a user has who chooses neither."""
    options.require_cpu()
    if dataset == "cifar10" and status(dataset).state == "missing":
        raise Skipped(f"needs CIFAR-10, which is not here; {status(dataset).note}")
    config = load_config("quickstart", {"dataset": dataset, "device": "cpu", "rounds": rounds, **changes})[0]
    history = execute(config).history
    training, whole = (sum(record[name] for record in history) for name in ("seconds", "wall_seconds"))
    yield FIRST_RUN.label, Result(training / whole, {"training s": training, "all rounds s": whole})


def _sides(settings: dict[str, Any], sets: Iterable[Sequence[str]], repetitions: int) -> list[list[float]]:
    """Seconds of whole runs with different sets of metrics; the first run of every set warms up and does not count."""
    configs = [load_config("quickstart", settings | {"evaluation.metrics": list(names)})[0] for names in sets]
    sides = [whole_run(prepare(config)) for config in configs]
    alternate(sides, 1)
    return alternate(sides, repetitions)


def whole_run(setup: Setup) -> Callable[[], float]:
    """A side to time: all rounds with their evaluation."""

    def run() -> float:
        began = time.perf_counter()
        Driver(setup, None, RunListener()).run()
        return time.perf_counter() - began

    return run


def _compared(plain: list[float], name: str, measured: list[float], rounds: int) -> Result:
    ratios = paired_ratios(measured, plain)
    medians = {"accuracy s/round": median(plain) / rounds, f"{name} s/round": median(measured) / rounds}
    return Result(median(ratios), medians, ratios)


BENCHMARKS = (
    Benchmark("metrics", "what diagnostics cost", (DEFAULT, PLAIN, EVERY), measure),
    Benchmark("first-run", "how much of a first run on pictures is training", (FIRST_RUN,), measure_first_run),
)
