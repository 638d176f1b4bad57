"""`cifar`, `cifar200` and `resnet18`: the FedBlade setting on one GPU: rounds, start-up, a whole run, other sides."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_least, at_most
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import median, paired_ratios
from fedblade.config.run_config import RunConfig
from fedblade.config.schema import Evaluation
from fedblade.data import status
from fedblade.runs import load_config

_SETTING = (
    "MobileNetV2, CIFAR-10, Dirichlet(0.05) class by class, 20 of 100 clients, 5 epochs, batch 64, fb-t1 of FedBlade, "
    "one GPU"
)
_START = f"from process start to the end of round 1, imports and data included: {_SETTING}"
_WHOLE = 200
_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
"""Environment variables with the folders in which compiled kernels are kept."""
TF32 = Case("seconds per round, TF32", f"stacked, training only: {_SETTING}", at_most(1.2), "s")
BF16 = Case("seconds per round, bf16", f"stacked with autocast=bf16, training only: {_SETTING}", at_most(0.9), "s")
CLIENTS = Case(
    "seconds per round, client-wise", "as TF32, with class mixes drawn client by client and clients of one size",
    unit="s",
)  # fmt: skip
FRESH = Case("to round 1, kernels built", f"no compiled kernels are kept yet; {_START}", at_most(15), "s")
FIRST = Case("to round 1, kernels kept", f"an earlier process has built the kernels; {_START}", at_most(10), "s")
ENGINES = Case("stacked over sequential", f"the same rounds with both engines, TF32: {_SETTING}", at_least(10))
FEDETF = Case("fedblade over fedetf", f"the same cohorts with both methods, stacked, TF32: {_SETTING}", at_most(1.07))
METRICS = Case("the default metrics", "rounds with their evaluation, with the default metrics, over rounds that "
               f"measure accuracy only, stacked, TF32: {_SETTING}", at_most(1.1))  # fmt: skip
CASES = (TF32, BF16, CLIENTS, FRESH, FIRST, ENGINES, FEDETF, METRICS)
WHOLE = Case(f"{_WHOLE} rounds", "stacked, TF32, with an evaluation after every round, from process start to the last "
             f"round, run once in full: {_SETTING}", at_most(290), "s")  # fmt: skip
RESNET18 = Case("stacked over sequential", "the same rounds with both engines, TF32, ResNet-18 in the place of the "
                f"model of: {_SETTING}", at_least(4))  # fmt: skip


def measure(options: Options, rounds: int = 20, few: int = 6, sequential: int = 4, **changes: Any) -> Measured:
    """All cases, every run in a fresh process: `rounds` rounds with FedBlade, `few` rounds with the other sides.

    Rounds are compared one by one, because a round has the same cohort and batches on all sides. The first round of a
    run captures and warms up, so it counts for the start-up time only. Kernels are kept in a new folder.
    """
    _require(options, changes)
    with tempfile.TemporaryDirectory() as kept:
        caches = {name: str(Path(kept) / name) for name in _CACHES}
        fresh = timed(1, "fedblade", "stacked", changes, **caches)["first"]
        yield FRESH.label, Result(fresh, {"first round s": fresh})
        sides = {
            "fedblade": timed(rounds, "fedblade", "stacked", changes, **caches),
            "fedetf": timed(few, "fedetf", "stacked", changes, **caches),
            "bf16": timed(few, "fedblade", "stacked", changes | {"autocast": "bf16"}, **caches),
            "client-wise": timed(few, "fedblade", "stacked", changes, split="client-wise", **caches),
        }
        yield from seconds_per_round(sides)
        default_metrics = {"evaluation.metrics": list(Evaluation().metrics)}
        with_metrics = timed(few, "fedblade", "stacked", changes | default_metrics, **caches)
        yield METRICS.label, compare_metrics(sides["fedblade"], with_metrics)
        slow = timed(sequential, "fedblade", "sequential", changes, **caches)
        yield ENGINES.label, compare_engines(sides["fedblade"], slow)


def measure_whole(options: Options, rounds: int = _WHOLE, **changes: Any) -> Measured:
    """A whole run in a fresh process, once."""
    _require(options, changes)
    run = timed(rounds, "fedblade", "stacked", changes)
    seconds = {"first round s": run["first"], "s/round with evaluation": median(run["later"])}
    yield WHOLE.label, Result(run["first"] + sum(run["later"]), seconds | _memory(run))


def measure_resnet18(options: Options, rounds: int = 4, model: str = "resnet18", **changes: Any) -> Measured:
    """Rounds with both engines, each in a fresh process."""
    _require(options, changes)
    stacked, sequential = (
        timed(rounds, "fedblade", engine, changes | {"model": model}) for engine in ("stacked", "sequential")
    )
    yield RESNET18.label, compare_engines(stacked, sequential)


def _require(options: Options, changes: Mapping[str, Any]) -> None:
    """Skip what cannot run here; with `changes` the data may be others."""
    options.require_cuda()
    if not changes and status("cifar10").state == "missing":
        raise Skipped(f"needs CIFAR-10, which is not here; {status('cifar10').note}")


def timed(
    rounds: int, method: str, engine: str, changes: Mapping[str, Any], split: str = "class-wise", **environment: str
) -> Mapping[str, Any]:
    """The seconds of rounds in a fresh process, and the largest memory of the GPU."""
    assignments = [f"{key}={value}" for key, value in changes.items()]
    with tempfile.TemporaryDirectory() as folder:
        return measure_in_fresh_process(
            "benchmarks.processes.cifar", str(time.time()), str(rounds), method, engine, split, *assignments,
            folder=Path(folder), **environment,
        )  # fmt: skip


def seconds_per_round(sides: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The cases that compare runs of the stacked engine."""
    whole = sides["fedblade"]
    yield FIRST.label, Result(whole["first"], {"first round s": whole["first"]})
    for case, name in ((TF32, "fedblade"), (BF16, "bf16"), (CLIENTS, "client-wise")):
        seconds = sides[name]["seconds"][1:]
        yield case.label, Result(median(seconds), {"s/round": median(seconds)} | _memory(sides[name]), seconds)
    etf = sides["fedetf"]["seconds"][1:]
    blade = whole["seconds"][1 : len(etf) + 1]
    ratios = paired_ratios(blade, etf)
    yield (
        FEDETF.label,
        Result(median(ratios), {"fedblade s/round": median(blade), "fedetf s/round": median(etf)}, ratios),
    )


def _memory(side: Mapping[str, Any]) -> dict[str, float]:
    """The largest memory that tensors took on the GPU, if the run used one."""
    return {} if side["peak_gib"] is None else {"peak GiB": side["peak_gib"]}


def compare_metrics(plain: Mapping[str, Any], default: Mapping[str, Any]) -> Result:
    """Rounds with the default metrics over rounds with accuracy only; seconds include evaluation."""
    slow = default["later"]
    fast = plain["later"][: len(slow)]
    ratios = paired_ratios(slow, fast)
    return Result(median(ratios), {"accuracy s/round": median(fast), "default s/round": median(slow)}, ratios)


def compare_engines(stacked: Mapping[str, Any], sequential: Mapping[str, Any]) -> Result:
    """Rounds of the sequential engine over rounds of the stacked engine."""
    slow = sequential["seconds"][1:]
    fast = stacked["seconds"][1 : len(slow) + 1]
    ratios = paired_ratios(slow, fast)
    totals = {f"{name}, {len(side['seconds'])} rounds s": sum(side["seconds"])
              for name, side in (("stacked", stacked), ("sequential", sequential))}  # fmt: skip
    medians = {"stacked s/round": median(fast), "sequential s/round": median(slow)}
    return Result(median(ratios), medians | totals, ratios)


def setting(rounds: int, method: str, engine: str, split: str, changes: Mapping[str, Any]) -> RunConfig:
    """A cell of the paper's first table with fewer rounds, evaluated after the last one; TF32 is allowed."""
    where = ["dataset=cifar10", "level=0.05", f"method={method}", f"split={split}"]
    evaluation = {"evaluation.every": rounds, "evaluation.metrics": ["accuracy"]}
    machine = {"engine": engine, "device": "cuda", "tf32": True}
    return load_config("fb-t1", {"rounds": rounds} | evaluation | machine | dict(changes), where)[0]


BENCHMARKS = (
    Benchmark("cifar", "the FedBlade setting on a GPU", CASES, measure),
    Benchmark("cifar200", "a whole run of the FedBlade setting on a GPU", (WHOLE,), measure_whole),
    Benchmark("resnet18", "the FedBlade setting with ResNet-18 on a GPU: both engines", (RESNET18,), measure_resnet18),
)
