"""What the rounds of a run measured: series by field, diagnostics in reading order, health."""

from dataclasses import dataclass

from fedblade.results import STATES, RunRecord, unreadable_note
from fedblade.watch._draw import Point, number, printable

_LARGEST = 1e150
"""Diverging values are clipped here, so that their differences stay finite."""
_CURVES = ("test_accuracy", "test_loss")
"""Numbers that have a curve of their own above the diagnostics."""


@dataclass(frozen=True)
class Series:
    """One number over the rounds that have it, as pairs of round and value, and how it is called."""

    name: str
    points: tuple[Point, ...]
    label: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """Values in order of rounds."""
        return tuple(value for _, value in self.points)

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


def series(run: RunRecord, name: str, label: str = "") -> Series:
    """The course of a number; empty where no round has a finite value of it."""
    found = [(r.number, r.fields[name]) for r in run.history if name in r.fields]
    return Series(name, tuple((float(x), max(-_LARGEST, min(_LARGEST, y))) for x, y in found), label or name)


def diagnostics(run: RunRecord) -> list[Series]:
    """What metrics and the method measured, the main numbers first, then the terms of the training loss."""
    fields = sorted(run.fields.values(), key=lambda field: not field.main)
    measured = [series(run, field.name, field.short_label) for field in fields if field.name not in _CURVES]
    terms = sorted({name for round_ in run.history for name in round_.fields if name.startswith("loss_")})
    return [each for each in measured if each.points] + [series(run, name) for name in terms]


def counters(run: RunRecord) -> list[str]:
    """Health counters that are not zero in every round, in words."""
    names = {name for round_ in run.history for name in round_.fields if name.startswith("count_")}
    found = [each for each in (series(run, name) for name in sorted(names)) if any(each.values)]
    return [_state(each, run) if each.name in STATES else _events(each, run) for each in found]


def _events(counted: Series, run: RunRecord) -> str:
    """How often something happened in all rounds, and in the newest one."""
    latest = counted.last if _is_newest(counted, run) else 0.0
    return f"{_label(counted)} {number(sum(counted.values))} ({number(latest)} in the last round)"


def _state(counted: Series, run: RunRecord) -> str:
    """How many there were last, and the most there were if that is more."""
    when = "in the last round" if _is_newest(counted, run) else f"in round {counted.points[-1][0]:.0f}"
    most = max(counted.values)
    before = f", at most {number(most)} in one" if most > counted.last else ""
    return f"{_label(counted)} {number(counted.last)} {when}{before}"


def _is_newest(counted: Series, run: RunRecord) -> bool:
    return counted.points[-1][0] == run.history[-1].number


def _label(counted: Series) -> str:
    return printable(counted.name.removeprefix("count_").replace("_", " "))


def not_finite(run: RunRecord) -> list[str]:
    """Losses that have no finite value in the newest round that should have one."""
    lost = [] if _has_test_loss(run) else ["test_loss"]
    if run.history:
        known = {name for round_ in run.history for name in round_.fields if name.startswith("loss_")}
        lost += sorted(known - run.history[-1].fields.keys())
    return [printable(name) for name in lost]


def _has_test_loss(run: RunRecord) -> bool:
    """Whether the newest evaluated round has a loss; evaluation measures it together with the accuracy."""
    return next((r.loss is not None for r in reversed(run.history) if r.accuracy is not None), True)


def warnings(run: RunRecord) -> list[str]:
    """What is wrong with the run by its own account."""
    lost, unread = not_finite(run), unreadable_note([run])
    return [
        *([f"failed: {printable(run.summary['error'])}"] if run.status == "failed" and "error" in run.summary else []),
        *([f"not finite in the last round: {', '.join(lost)}"] if lost else []),
        *([printable(unread)] if unread else []),
    ]
