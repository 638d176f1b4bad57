"""The numbers of a paper's table, computed from finished runs.

A measure is a word, with what it is about after a space:

- `last10`, `last5`, `final`, `best`: test accuracy, see `fedblade.protocols`; `domain`: its mean over domains, and
  `domain 2` the accuracy on one of them. Where a method calibrates its model at the end of the run, they are all of
  the calibrated model.
- `rounds_to 40`: the first round with 40 % or more, `T+` if there is none; `speedup_to 40`: the baseline's rounds
  divided by those.
- `history KEY`: a field of the last evaluated round; `PROTOCOL KEY`: a field of the summary that the protocol writes;
  `PROTOCOL KEY STD`: the same with the deviation over the clients of a run, another field, beside it.
- `seconds_per_round`, `minutes_per_round`; `prototype_kb`: size of all class prototypes, which needs no run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fedblade import protocols
from fedblade.results import RunDirectory

BYTES_PER_KB = 1024


@dataclass(frozen=True)
class FinishedRun:
    """What a measure reads of a run."""

    history: list[dict[str, Any]]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Value:
    """A measured number over seeds, its deviation over seeds (n−1) or over the clients of a run (n).

    `bound` is `+` (reached later than printed), `<` (less than printed) or nothing. `seeds` has each seed's number.
    """

    mean: float
    std: float | None
    runs: int
    bound: str = ""
    over: Literal["seeds", "clients"] = "seeds"
    seeds: tuple[float, ...] = field(default=(), compare=False)

    @property
    def deviation(self) -> float | None:
        """The deviation, where there is more than one value to deviate."""
        return None if self.bound else self.std

    def text(self, decimals: int = 2) -> str:
        """The number as a table shows it, `200+` and `<0.9` included."""
        printed = f"{self.mean:.{decimals}f}"
        if self.bound:
            return f"{printed}+" if self.bound == "+" else f"<{printed}"
        return printed if self.deviation is None else f"{printed} ± {self.deviation:.{decimals}f}"


def read_finished(folder: Path) -> FinishedRun | None:
    """A run that came to its end, or None."""
    directory = RunDirectory(folder)
    summary = directory.finished_summary()
    return None if summary is None else FinishedRun(directory.history(), summary)


def measure(how: str, seeds: Sequence[Sequence[FinishedRun]]) -> Value | None:
    """Mean and deviation over seeds; each seed is the mean over its runs. None if a run lacks the number.

    A deviation over clients (n) is its mean over runs.
    """
    kind, about, spread = (*how.split(" "), "", "")[:3]
    if kind == "rounds_to":
        return _rounds_to([run for runs in seeds for run in runs], float(about))
    means = _per_seed(kind, about, seeds)
    if means is None:
        return None
    found = over_seeds(means)
    deviations = _per_seed(kind, spread, seeds) if spread else None
    return replace(found, std=fmean(deviations), over="clients") if deviations else found


def over_seeds(numbers: Sequence[float]) -> Value:
    """One number per seed as mean and deviation."""
    return Value(*protocols.mean_std(numbers), runs=len(numbers), seeds=tuple(numbers))


def speedup(baseline: Value | None, own: Value | None) -> Value | None:
    """How many times fewer rounds than the baseline: rounds of the baseline / own rounds."""
    if baseline is None or own is None or baseline.bound:
        return None
    return Value(baseline.mean / own.mean, None, own.runs, "<" if own.bound else "")


def prototype_kilobytes(num_classes: int, dim: int) -> Value:
    """Size of one float32 prototype per class."""
    return Value(num_classes * dim * 4 / BYTES_PER_KB, None, 1)


def _rounds_to(runs: Sequence[FinishedRun], threshold: float) -> Value | None:
    """Mean round over seeds; a seed that never gets there makes it a bound at the number of rounds."""
    reached = [protocols.rounds_to(run.history, threshold) for run in runs]
    if not reached:
        return None
    hits = [hit for hit in reached if hit is not None]
    if len(hits) < len(reached):
        return Value(float(max(len(run.history) for run in runs)), None, len(runs), "+")
    return over_seeds(hits)


def _per_seed(kind: str, about: str, seeds: Sequence[Sequence[FinishedRun]]) -> list[float] | None:
    """One number per seed, the mean over its runs; None if a run lacks it or there is none."""
    numbers = [[_number(kind, about, run) for run in runs] for runs in seeds]
    if not numbers or any(value is None for values in numbers for value in values):
        return None
    return [fmean(value for value in values if value is not None) for values in numbers]


def _number(kind: str, about: str, run: FinishedRun) -> float | None:
    match kind:
        case "best":
            return protocols.best(protocols.outcome(run.history))
        case "domain" if about:
            return _on_domain(protocols.outcome(run.history), about)
        case "final":
            stored = _stored(run, "final_accuracy")
            return protocols.headline(run.history, kind) if stored is None else stored
        case "last10" | "last5" | "domain":
            return protocols.headline(run.history, kind)
        case "history":
            return _last(run.history, about)
        case "seconds_per_round":
            return fmean(row["seconds"] for row in run.history)
        case "minutes_per_round":
            return fmean(row["seconds"] for row in run.history) / 60
        case _:
            return _stored(run, about)


def _stored(run: FinishedRun, key: str) -> float | None:
    value = run.summary.get(key)
    return None if value is None else float(value)


def _on_domain(history: protocols.History, domain: str) -> float | None:
    tables: list[Mapping[str, float]] = [row["domain_accuracy"] for row in history if row.get("domain_accuracy")]
    return tables[-1].get(domain) if tables else None


def _last(history: protocols.History, key: str) -> float | None:
    values = [row[key] for row in history if row.get(key) is not None]
    return float(values[-1]) if values else None
