"""The numbers of a paper's table, computed from finished runs.

A measure is written as a word, sometimes with arguments after a space:

- `last10`, `last5`, `final`, `best`: test accuracy, see `fedblade.protocols`; `domain`: its mean over domains;
  `domain 2`: the accuracy on one domain. Where a method calibrates its model at the end of the run, these are numbers
  of the calibrated model.
- `rounds_to 40`: the first round with 40 % or more; `T+` with the number of rounds if there is none. `speedup_to 40`:
  the baseline's rounds divided by the method's rounds.
- `history KEY`: a field of the last evaluated round. `PROTOCOL KEY`: a field of the summary that the protocol writes.
  `PROTOCOL KEY STD`: the same, and a second field with the deviation over the clients of a run.
- `seconds_per_round`, `minutes_per_round`. `prototype_kb`: size of all class prototypes, which needs no run.
- `bench …`: measured by a benchmark and by no run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from fedblade import protocols
from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.config.schema import Evaluation
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import metrics
from fedblade.presets.grid import Cell
from fedblade.results import RunDirectory

BYTES_PER_KB = 1024
_FROM_RUNS = {"best", "rounds_to", "speedup_to", "history", "seconds_per_round", "minutes_per_round", "prototype_kb"}
_FROM_RUNS |= set(get_args(Evaluation.model_fields["protocol"].annotation))
_FROM_BENCHMARKS = {"bench": "`fedblade bench losses`"}


@dataclass(frozen=True)
class FinishedRun:
    """The files of a run that measures read."""

    history: list[dict[str, Any]]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """A number of several runs: mean over seeds, deviation over seeds (n−1) or over the clients of a run (n).

    `bound` is `+` (reached later than `mean`), `<` (less than `mean`) or empty. `seeds` has one number per seed.
    """

    mean: float
    std: float | None
    runs: int
    bound: str = ""
    over: Literal["seeds", "clients"] = "seeds"
    seeds: tuple[float, ...] = field(default=(), compare=False)

    @property
    def deviation(self) -> float | None:
        """The deviation; None for a bound and for a single seed."""
        return None if self.bound else self.std

    def text(self, decimals: int = 2) -> str:
        """The number as a table shows it, such as `61.20 ± 0.45`, `200+` or `<0.9`."""
        printed = f"{self.mean:.{decimals}f}"
        if self.bound:
            return f"{printed}+" if self.bound == "+" else f"<{printed}"
        return printed if self.deviation is None else f"{printed} ± {self.deviation:.{decimals}f}"


def read_finished(folder: Path) -> FinishedRun | None:
    """The run in a folder, or None if the run is not finished."""
    directory = RunDirectory(folder)
    summary = directory.finished_summary()
    return None if summary is None else FinishedRun(directory.history(), summary)


def measure(text: str, seeds: Sequence[Sequence[FinishedRun]]) -> Measurement | None:
    """Mean and deviation over seeds of the mean over the runs of a seed; None if a run lacks the number.

    A deviation over clients (n) is averaged over runs.
    """
    kind, argument, deviation_field = (*text.split(" "), "", "")[:3]
    if kind == "rounds_to":
        return _rounds_to([run for runs in seeds for run in runs], float(argument))
    means = _per_seed(kind, argument, seeds)
    if means is None:
        return None
    measurement = over_seeds(means)
    deviations = _per_seed(kind, deviation_field, seeds) if deviation_field else None
    return replace(measurement, std=fmean(deviations), over="clients") if deviations else measurement


def over_seeds(numbers: Sequence[float]) -> Measurement:
    """The mean and the deviation of one number per seed."""
    return Measurement(*protocols.mean_std(numbers), runs=len(numbers), seeds=tuple(numbers))


def speedup(baseline: Measurement | None, method: Measurement | None) -> Measurement | None:
    """Rounds of the baseline divided by rounds of the method."""
    if baseline is None or method is None or baseline.bound:
        return None
    return Measurement(baseline.mean / method.mean, None, method.runs, "<" if method.bound else "")


def prototype_kilobytes(num_classes: int, dim: int) -> Measurement:
    """Size of one float32 prototype per class."""
    return Measurement(num_classes * dim * 4 / BYTES_PER_KB, None, 1)


def check_cell(cell: Cell) -> Mapping[str, str]:
    """Look up every part of a cell: an unknown name or setting is an error.

    Returns the metrics that no run gives, with the command that measures them.
    """
    config = complete_config({**apply_overrides(cell.config, {}), "seed": cell.seeds[0]})
    config.build_method()
    for name in config.evaluation.metrics:
        metrics.get(name)
    commands = {metric: _benchmark_of(measure) for metric, measure in cell.measures.items()}
    return {metric: command for metric, command in commands.items() if command is not None}


def _rounds_to(runs: Sequence[FinishedRun], threshold: float) -> Measurement | None:
    """The mean round over runs. If a run never reaches the threshold, the number of rounds is a bound."""
    reached = [protocols.rounds_to(run.history, threshold) for run in runs]
    if not reached:
        return None
    rounds = [number for number in reached if number is not None]
    if len(rounds) < len(reached):
        return Measurement(float(max(len(run.history) for run in runs)), None, len(runs), "+")
    return over_seeds(rounds)


def _per_seed(kind: str, argument: str, seeds: Sequence[Sequence[FinishedRun]]) -> list[float] | None:
    """One number per seed, the mean over its runs; None if a run lacks the number or there is no run."""
    numbers = [[_number(kind, argument, run) for run in runs] for runs in seeds]
    if not numbers or any(value is None for values in numbers for value in values):
        return None
    return [fmean(value for value in values if value is not None) for values in numbers]


def _number(kind: str, argument: str, run: FinishedRun) -> float | None:
    match kind:
        case "best":
            return protocols.best(protocols.outcome(run.history))
        case "domain" if argument:
            return _on_domain(protocols.outcome(run.history), argument)
        case "final":
            stored = _summary_value(run, "final_accuracy")
            return protocols.headline(run.history, kind) if stored is None else stored
        case "last10" | "last5" | "domain":
            return protocols.headline(run.history, kind)
        case "history":
            return _last_value(run.history, argument)
        case "seconds_per_round":
            return fmean(record["seconds"] for record in run.history)
        case "minutes_per_round":
            return fmean(record["seconds"] for record in run.history) / 60
        case _:
            return _summary_value(run, argument)


def _summary_value(run: FinishedRun, key: str) -> float | None:
    value = run.summary.get(key)
    return None if value is None else float(value)


def _on_domain(history: protocols.History, domain: str) -> float | None:
    tables: list[Mapping[str, float]] = [
        record["domain_accuracy"] for record in history if record.get("domain_accuracy")
    ]
    return tables[-1].get(domain) if tables else None


def _last_value(history: protocols.History, key: str) -> float | None:
    values = [record[key] for record in history if record.get(key) is not None]
    return float(values[-1]) if values else None


def _benchmark_of(measure: Any) -> str | None:
    """The command that measures a metric; None where runs give the metric."""
    text = str(next(iter(measure.values())) if isinstance(measure, dict) else measure)
    kind = text.partition(" ")[0]
    if kind in _FROM_RUNS:
        return None
    if kind not in _FROM_BENCHMARKS:
        raise Misconfigured(f"unknown measure '{text}'.{nearest(kind, (*_FROM_RUNS, *_FROM_BENCHMARKS))}")
    return _FROM_BENCHMARKS[kind]
