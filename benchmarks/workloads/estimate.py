"""`estimate`: the time that a dry run names, against the time that the run then takes, on the CPU."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_most
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.timing import median

Settings = Mapping[str, Mapping[str, Any]]
SETTINGS: Settings = {
    "FedBlade": {"method": "fedblade", "rounds": 60},
    "SCAFFOLD": {"method": "scaffold", "rounds": 60, "evaluation.diagnostics_every": 5},
    "MobileNetV2": {
        "method": "fedavg", "model": "mobilenet_v2", "rounds": 12, "epochs": 1, "clients_per_round": 4,
        "evaluation.metrics": ["accuracy", "classes", "drift"],
    },
}  # fmt: skip
WORST = Case(
    "worst of three settings",
    "estimated over measured time, or its inverse where that is larger: quickstart with FedBlade and with SCAFFOLD, 60 "
    "rounds, and with MobileNetV2, 12 rounds of 4 clients; estimate and run in fresh processes, without imports",
    at_most(1.25),
)


def measure(options: Options, settings: Settings = SETTINGS, repetitions: int = 1) -> Measured:
    """Every repetition estimates and runs all settings; its value is that of the worst one."""
    options.require_cpu()
    worst, times = list[float](), dict[str, list[float]]()
    for _ in range(options.repetitions(repetitions)):
        ratios = []
        for name, changes in settings.items():
            estimated, run = seconds("estimate", changes), seconds("run", changes)
            times.setdefault(f"{name} estimated s", []).append(estimated)
            times.setdefault(f"{name} s", []).append(run)
            ratios.append(max(estimated / run, run / estimated))
        worst.append(max(ratios))
    yield WORST.label, Result(median(worst), {name: median(values) for name, values in times.items()}, worst)


def seconds(side: str, changes: Mapping[str, Any]) -> float:
    """The estimate of a run of the quickstart preset, or the time that the run takes."""
    assignments = [f"{key}={value}" for key, value in {"device": "cpu", **changes}.items()]
    with tempfile.TemporaryDirectory() as folder:
        result = measure_in_fresh_process("benchmarks.processes.estimate", side, *assignments, folder=Path(folder))
    return float(result["seconds"])


BENCHMARKS = (Benchmark("estimate", "the time that a dry run names, against the run", (WORST,), measure),)
