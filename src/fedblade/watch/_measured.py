"""What a run measured: its numbers over rounds, its health counters and its warnings."""

from dataclasses import dataclass

from fedblade.results import STATE_COUNTERS, RunRecord, unreadable_note
from fedblade.watch._draw import Point, number, terminal_safe

_LARGEST = 1e150
"""Larger values are clipped, so that differences of diverging values stay finite."""
_CURVES = ("test_accuracy", "test_loss")
"""Numbers that are drawn as curves above the diagnostics."""


@dataclass(frozen=True)
class Series:
    """One number over rounds: pairs of a round and a value, and the label of the number."""

    name: str
    points: tuple[Point, ...]
    label: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """The values in the order of rounds."""
        return tuple(value for _, value in self.points)

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


def series(run: RunRecord, name: str, label: str = "") -> Series:
    """A number over rounds, without the rounds that have no finite value of it."""
    pairs = [(round_.number, round_.numbers[name]) for round_ in run.history if name in round_.numbers]
    points = tuple((float(index), max(-_LARGEST, min(_LARGEST, value))) for index, value in pairs)
    return Series(name, points, label or name)


def diagnostics(run: RunRecord) -> list[Series]:
    """The numbers of metrics and of the method, the main ones first, then the terms of the training loss."""
    fields = sorted(run.fields.values(), key=lambda field: not field.main)
    measured = [series(run, field.name, field.short_label) for field in fields if field.name not in _CURVES]
    return [course for course in measured if course.points] + [series(run, name) for name in _names(run, "loss_")]


def counters(run: RunRecord) -> list[str]:
    """The health counters in words, without those that are zero in all rounds."""
    courses = (series(run, name) for name in _names(run, "count_"))
    counted = [course for course in courses if any(course.values)]
    return [_state(course, run) if course.name in STATE_COUNTERS else _events(course, run) for course in counted]


def _names(run: RunRecord, prefix: str) -> list[str]:
    """The names in the history that begin with `prefix`, sorted."""
    return sorted({name for round_ in run.history for name in round_.numbers if name.startswith(prefix)})


def _events(counted: Series, run: RunRecord) -> str:
    """How often an event happened in all rounds, and in the newest one."""
    latest = counted.last if _is_newest(counted, run) else 0.0
    return f"{_label(counted)} {number(sum(counted.values))} ({number(latest)} in the last round)"


def _state(counted: Series, run: RunRecord) -> str:
    """The newest count of a state, and the highest count if that is higher."""
    when = "in the last round" if _is_newest(counted, run) else f"in round {counted.points[-1][0]:.0f}"
    most = max(counted.values)
    highest = f", at most {number(most)} in one" if most > counted.last else ""
    return f"{_label(counted)} {number(counted.last)} {when}{highest}"


def _is_newest(counted: Series, run: RunRecord) -> bool:
    return counted.points[-1][0] == run.history[-1].number


def _label(counted: Series) -> str:
    return terminal_safe(counted.name.removeprefix("count_").replace("_", " "))


def not_finite(run: RunRecord) -> list[str]:
    """The names of the losses that have no finite value in the newest round that should have one."""
    names = [] if _has_test_loss(run) else ["test_loss"]
    names += [name for name in _names(run, "loss_") if name not in run.history[-1].numbers]
    return [terminal_safe(name) for name in names]


def _has_test_loss(run: RunRecord) -> bool:
    """Whether the newest evaluated round has a loss; evaluation measures it together with the accuracy."""
    evaluated = (round_ for round_ in reversed(run.history) if round_.accuracy is not None)
    return next((round_.loss is not None for round_ in evaluated), True)


def warnings(run: RunRecord) -> list[str]:
    """Why the run failed, losses that are not finite, and parts of the files that cannot be read."""
    losses, unread = not_finite(run), unreadable_note([run])
    return [
        *(
            [f"failed: {terminal_safe(run.summary['error'])}"]
            if run.status == "failed" and "error" in run.summary
            else []
        ),
        *([f"not finite in the last round: {', '.join(losses)}"] if losses else []),
        *([terminal_safe(unread)] if unread else []),
    ]
