"""`flower` and `pfl`: whole runs against other frameworks, each side in a fresh process, imports excluded, CPU."""

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedblade.bench._base import Benchmark, Case, Measured, Options, Result, Skipped, at_least
from fedblade.bench._child import measured_alone
from fedblade.bench._timing import alternate, median, paired_ratios
from fedblade.bench._workload import Workload

WORKLOADS = (Workload(epochs=1), Workload(epochs=5))
APART = 5.0
"""Percentage points of accuracy that the sides may differ by and still have done the same work."""
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
_SHARED = "20 equal clients, digits CNN, batch 32, FedAvg, CPU; the whole run in a fresh process, imports excluded"


def measure_flower(
    options: Options, workloads: Sequence[Workload] = WORKLOADS, usual: int = 3, launcher: Sequence[str] = ()
) -> Measured:
    """Whole runs of Flower's simulation and of the stacked engine, taking turns."""
    options.require_cpu()
    _require("flwr", "ray")
    for work in workloads:
        yield str(work), against("Flower", "fedblade.bench._flower_run", work, options.repetitions(usual), launcher)


def measure_pfl(
    options: Options, workloads: Sequence[Workload] = WORKLOADS, usual: int = 5, launcher: Sequence[str] = _TORCHRUN
) -> Measured:
    """Whole runs of pfl in two processes and of the stacked engine, taking turns."""
    options.require_cpu()
    _require("pfl")
    for work in workloads:
        yield str(work), against("pfl", "fedblade.bench._pfl_run", work, options.repetitions(usual), launcher)


def against(name: str, module: str, work: Workload, repetitions: int, launcher: Sequence[str]) -> Result:
    """The ratio of whole runs, and whether both sides reached about the same accuracy."""
    with tempfile.TemporaryDirectory() as place:
        folder = work.write(Path(place))
        accuracies: dict[str, list[float]] = {}

        def side(key: str, module: str, launcher: Sequence[str]) -> float:
            found = measured_alone(module, folder=folder, launcher=launcher)
            accuracies.setdefault(key, []).append(found["accuracy"])
            return float(found["seconds"])

        ours, other = alternate(
            [lambda: side("fedblade", "fedblade.bench._our_run", ()), lambda: side(name, module, launcher)],
            repetitions,
        )
    ratios = paired_ratios(other, ours)
    reached = {key: median(values) for key, values in accuracies.items()}
    medians = {"fedblade s": median(ours), f"{name} s": median(other)}
    accuracy = {f"{key} accuracy %": value for key, value in reached.items()}
    apart = abs(reached["fedblade"] - reached[name]) > APART
    note = f"accuracies are more than {APART:g} points apart, so the runs cannot be compared" if apart else ""
    return Result(median(ratios), medians | accuracy, ratios, note, not apart)


def _require(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise Skipped(f"{' and '.join(missing)} not installed; pip install 'fedblade[bench]'")


def _cases(what: str, goals: Sequence[float]) -> tuple[Case, ...]:
    return tuple(Case(str(work), what, at_least(goal)) for work, goal in zip(WORKLOADS, goals, strict=True))


BENCHMARKS = (
    Benchmark(
        "flower",
        "whole runs against Flower's simulation",
        _cases(f"Flower's run_simulation (Ray, two one-thread workers) over stacked: {_SHARED}", (15, 8)),
        measure_flower,
    ),
    Benchmark(
        "pfl",
        "whole runs against pfl-research",
        _cases(f"pfl-research (torchrun, two one-thread processes) over stacked: {_SHARED}", (3, 3)),
        measure_pfl,
    ),
)
