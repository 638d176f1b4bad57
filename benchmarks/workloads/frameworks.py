"""`flower` and `pfl`: whole runs on the CPU against other frameworks, in fresh processes, without imports."""

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_least
from benchmarks.digits_federation import DigitsFederation
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import alternate, median, paired_ratios

FEDERATIONS = (DigitsFederation(epochs=1), DigitsFederation(epochs=5))
APART = 5.0
"""Percentage points between the accuracies of the sides that still count as the same work."""
OURS, FLOWER, PFL = (f"benchmarks.processes.{name}" for name in ("fedblade_run", "flower_simulation", "pfl_research"))
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
_SHARED = "20 equal clients, digits CNN, batch 32, FedAvg, CPU; the whole run in a fresh process, imports excluded"


def measure_flower(
    options: Options,
    federations: Sequence[DigitsFederation] = FEDERATIONS,
    repetitions: int = 3,
    launcher: Sequence[str] = (),
) -> Measured:
    """Whole runs of Flower's simulation and of the stacked engine, taking turns."""
    options.require_cpu()
    _require("flwr", "ray")
    for federation in federations:
        yield str(federation), against("Flower", FLOWER, federation, options.repetitions(repetitions), launcher)


def measure_pfl(
    options: Options,
    federations: Sequence[DigitsFederation] = FEDERATIONS,
    repetitions: int = 5,
    launcher: Sequence[str] = _TORCHRUN,
) -> Measured:
    """Whole runs of pfl in two processes and of the stacked engine, taking turns."""
    options.require_cpu()
    _require("pfl")
    for federation in federations:
        yield str(federation), against("pfl", PFL, federation, options.repetitions(repetitions), launcher)


def against(name: str, program: str, federation: DigitsFederation, repetitions: int, launcher: Sequence[str]) -> Result:
    """The ratio of whole runs, and whether both sides reached about the same accuracy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = federation.write(Path(temporary))
        accuracies: dict[str, list[float]] = {}

        def side(name: str, program: str, launcher: Sequence[str]) -> float:
            result = measure_in_fresh_process(program, folder=folder, launcher=launcher)
            accuracies.setdefault(name, []).append(result["accuracy"])
            return float(result["seconds"])

        ours, other = alternate(
            [lambda: side("fedblade", OURS, ()), lambda: side(name, program, launcher)],
            repetitions,
        )
    ratios = paired_ratios(other, ours)
    reached = {side: median(values) for side, values in accuracies.items()}
    medians = {"fedblade s": median(ours), f"{name} s": median(other)}
    accuracy = {f"{side} accuracy %": value for side, value in reached.items()}
    apart = abs(reached["fedblade"] - reached[name]) > APART
    note = f"accuracies are more than {APART:g} points apart, so the runs cannot be compared" if apart else ""
    return Result(median(ratios), medians | accuracy, ratios, note, not apart)


def _require(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise Skipped(f"{' and '.join(missing)} not installed; pip install -e '.[bench]'")


def _cases(what: str, goals: Sequence[float]) -> tuple[Case, ...]:
    return tuple(
        Case(str(federation), what, at_least(goal)) for federation, goal in zip(FEDERATIONS, goals, strict=True)
    )


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
        _cases(f"pfl-research (torchrun, two one-thread processes) over stacked: {_SHARED}", (5, 4)),
        measure_pfl,
    ),
)
