"""`state`: rounds of methods whose clients keep state, over rounds of FedAvg, with the states on disk."""

from collections.abc import Mapping
from typing import Any

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_most
from benchmarks.timing import median, paired_ratios
from benchmarks.workloads.cifar import timed
from fedblade.core.registry import methods
from fedblade.data import status

METHODS = {"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedgela": "FedGELA", "ditto": "Ditto"}
SMALL: Mapping[str, Any] = {
    "dataset": "digits", "dataset.augment": "none", "model": "small_cnn", "model.dim": 128, "partition": "iid",
    "num_clients": 20, "clients_per_round": 10, "epochs": 3, "batch_size": 32, "lr": 0.02, "device": "cpu",
}  # fmt: skip
"""What the setting of `cifar` becomes on a CPU."""
_SETTINGS: Mapping[str, Mapping[str, Any]] = {"cuda": {}, "cpu": SMALL}
_WHAT = (
    "the same cohorts with both methods, stacked, TF32, training only, with the run folder on disk: the setting of "
    "`cifar` on a GPU, digits with a small CNN on the CPU. Ditto trains two models, so its time is halved"
)


def measure(options: Options, rounds: int = 6, settings: Mapping[str, Mapping[str, Any]] = _SETTINGS) -> Measured:
    """On the CPU and on a GPU where there is one, every method in a fresh process. The first round warms up."""
    for device, changes in settings.items():
        try:
            _require(options, device)
        except Skipped as reason:
            yield from ((_label(method, device), str(reason)) for method in METHODS)
            continue
        plain = timed(rounds, "fedavg", "stacked", changes)["seconds"][1:]
        for method, name in METHODS.items():
            run = timed(rounds, "fedavg", "stacked", {**changes, "method": method})["seconds"][1:]
            models = len(methods.get(method).make().phases)
            ratios = [ratio / models for ratio in paired_ratios(run, plain)]
            medians = {f"{name} s/round": median(run), "FedAvg s/round": median(plain)}
            yield _label(method, device), Result(median(ratios), medians, ratios)


def _require(options: Options, device: str) -> None:
    if device == "cpu":
        options.require_cpu()
        return
    options.require_cuda()
    if status("cifar10").state == "missing":
        raise Skipped(f"needs CIFAR-10, which is not here; {status('cifar10').note}")


def _label(method: str, device: str) -> str:
    return f"{METHODS[method]} over FedAvg, {device}"


def _cases(device: str) -> tuple[Case, ...]:
    goal = at_most(1.25) if device == "cuda" else None
    return tuple(Case(_label(method, device), _WHAT, goal) for method in METHODS)


BENCHMARKS = (
    Benchmark("state", "methods whose clients keep state, over FedAvg", (*_cases("cuda"), *_cases("cpu")), measure),
)
