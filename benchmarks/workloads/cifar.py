"""`cifar`: the FedBlade setting on one GPU: seconds per round, start-up, other engine, other method, metrics."""

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

_SETTING = "MobileNetV2, CIFAR-10, Dirichlet(0.05), 20 of 100 clients, 5 epochs, batch 64, fb-t1 of FedBlade, one GPU"
_WHOLE = 200
TF32 = Case("seconds per round, TF32", f"stacked, training only: {_SETTING}", at_most(2.0), "s")
BF16 = Case("seconds per round, bf16", f"stacked with autocast=bf16, training only: {_SETTING}", at_most(1.5), "s")
FIRST = Case("to the first round", f"from process start to the end of round 1, imports and data included: {_SETTING}",
             at_most(20), "s")  # fmt: skip
WHOLE = Case(f"{_WHOLE} rounds", f"start-up and {_WHOLE} rounds with their evaluations, at the median of the rounds "
             f"after the first: {_SETTING}", at_most(480), "s")  # fmt: skip
ENGINES = Case("stacked over sequential", f"the same rounds with both engines, TF32: {_SETTING}", at_least(10))
FEDETF = Case("fedblade over fedetf", f"the same cohorts with both methods, stacked, TF32: {_SETTING}", at_most(1.1))
METRICS = Case("the default metrics", "rounds with their evaluation, with the default metrics, over rounds that "
               f"measure accuracy only, stacked, TF32: {_SETTING}", at_most(1.1))  # fmt: skip
CASES = (TF32, BF16, FIRST, WHOLE, ENGINES, FEDETF, METRICS)


def measure(options: Options, rounds: int = 20, few: int = 6, **changes: Any) -> Measured:
    """All cases, every run in a fresh process: `rounds` rounds with FedBlade, `few` rounds with the other sides.

    Rounds are compared one by one, because a round has the same cohort and batches on all sides. The first round of a
    run captures and warms up, so it counts for the start-up time only.
    """
    options.require_cuda()
    if not changes and status("cifar10").state == "missing":
        raise Skipped(f"needs CIFAR-10, which is not here; {status('cifar10').note}")
    sides = {
        "fedblade": timed(rounds, "fedblade", "stacked", changes),
        "fedetf": timed(few, "fedetf", "stacked", changes),
        "bf16": timed(few, "fedblade", "stacked", changes | {"autocast": "bf16"}),
    }
    yield from seconds_per_round(sides)
    default_metrics = {"evaluation.metrics": list(Evaluation().metrics)}
    with_metrics = timed(few, "fedblade", "stacked", changes | default_metrics)
    yield METRICS.label, compare_metrics(sides["fedblade"], with_metrics)
    yield ENGINES.label, compare_engines(sides["fedblade"], timed(few, "fedblade", "sequential", changes))


def timed(rounds: int, method: str, engine: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The seconds of rounds in a fresh process."""
    assignments = [f"{key}={value}" for key, value in changes.items()]
    with tempfile.TemporaryDirectory() as folder:
        return measure_in_fresh_process(
            "benchmarks.processes.cifar",
            str(time.time()),
            str(rounds),
            method,
            engine,
            *assignments,
            folder=Path(folder),
        )


def seconds_per_round(sides: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The cases that compare runs of the stacked engine."""
    whole = sides["fedblade"]
    per_round = median(whole["later"])
    yield FIRST.label, Result(whole["first"], {"first round s": whole["first"]})
    total = whole["first"] + (_WHOLE - 1) * per_round
    yield WHOLE.label, Result(total, {"s/round with evaluation": per_round}, note="extrapolated")
    for case, name in ((TF32, "fedblade"), (BF16, "bf16")):
        seconds = sides[name]["seconds"][1:]
        yield case.label, Result(median(seconds), {"s/round": median(seconds)}, seconds)
    etf = sides["fedetf"]["seconds"][1:]
    blade = whole["seconds"][1 : len(etf) + 1]
    ratios = paired_ratios(blade, etf)
    yield (
        FEDETF.label,
        Result(median(ratios), {"fedblade s/round": median(blade), "fedetf s/round": median(etf)}, ratios),
    )


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


def setting(rounds: int, method: str, engine: str, changes: Mapping[str, Any]) -> RunConfig:
    """A cell of the paper's first table with fewer rounds, evaluated after the last one; TF32 is allowed."""
    where = ["dataset=cifar10", "level=0.05", f"method={method}"]
    evaluation = {"evaluation.every": rounds, "evaluation.metrics": ["accuracy"]}
    machine = {"engine": engine, "device": "cuda", "tf32": True}
    return load_config("fb-t1", {"rounds": rounds} | evaluation | machine | dict(changes), where)[0]


BENCHMARKS = (Benchmark("cifar", "the FedBlade setting on a GPU", CASES, measure),)
