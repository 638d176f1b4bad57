"""What a benchmark is: cases with goals, and a function that measures them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedblade.core.errors import Misconfigured, RunFailed

Unit = Literal["×", "s", "ms", "difference"]


class Skipped(Exception):
    """A benchmark cannot run here; the text says why and, where that helps, what to install."""


@dataclass(frozen=True)
class Goal:
    """A bound that the measured value must reach, or must not pass."""

    bound: float
    at_least: bool

    def met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


def at_least(bound: float) -> Goal:
    """The value must reach the bound."""
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    """The value must not pass the bound."""
    return Goal(bound, at_least=False)


@dataclass(frozen=True)
class Case:
    """One line of a benchmark: what it compares and the goal, if there is one."""

    label: str
    what: str
    goal: Goal | None = None
    unit: Unit = "×"


@dataclass(frozen=True)
class Result:
    """What was measured of a case: its value, the medians of the sides, named with their unit, and how it came about.

    `values` holds one value per repetition, `note` what a reader must know. Where the sides turned out not to do the
    same, `comparable` is False and no goal is met.
    """

    value: float
    medians: Mapping[str, float] = field(default_factory=dict)
    values: Sequence[float] = ()
    note: str = ""
    comparable: bool = True


@dataclass(frozen=True)
class Row:
    """A case of a benchmark with its result, or with the reason why there is none."""

    name: str
    case: Case
    result: Result | None
    skipped: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None where there is none, nothing was measured or the sides cannot be compared."""
        if self.case.goal is None or self.result is None or not self.result.comparable:
            return None
        return self.case.goal.met(self.result.value)

    def table(self) -> dict[str, Any]:
        """The row as plain values; `ratio` is None where the value is a time, a size or an error."""
        result = self.result
        value = None if result is None else result.value
        return {
            "name": self.name,
            "case": self.case.label,
            "ratio": value if self.case.unit == "×" else None,
            "value": value,
            "unit": self.case.unit,
            "goal": None if self.case.goal is None else str(self.case.goal),
            "met": self.met,
            "what": self.case.what,
            "medians": {} if result is None else dict(result.medians),
            "values": [] if result is None else list(result.values),
            "repetitions": 0 if result is None else max(1, len(result.values)),
            "note": "" if result is None else result.note,
            "skipped": self.skipped,
        }


@dataclass(frozen=True)
class Options:
    """What a user may ask of every benchmark: repetitions of each side (None: its own number) and the device."""

    repeat: int | None = None
    device: str = "auto"

    def repetitions(self, usual: int) -> int:
        """How often each side runs."""
        return usual if self.repeat is None else self.repeat

    def require_cuda(self) -> None:
        """Skip what needs a GPU where there is none, or where the CPU was asked for."""
        import torch

        if self.device == "cpu":
            raise Skipped("needs a GPU; --device cpu was asked for")
        if not torch.cuda.is_available():
            raise Skipped("needs a GPU; torch sees no CUDA device here")

    def require_cpu(self) -> None:
        """Skip what is measured on the CPU where a GPU was asked for."""
        if self.device not in ("auto", "cpu"):
            raise Skipped(f"is measured on the CPU; --device {self.device} was asked for")


Measured = Iterable[tuple[str, Result | str]]


@dataclass(frozen=True)
class Benchmark:
    """A named family of cases. `measure` gives, by a case's label, its result or the reason why it cannot run here."""

    name: str
    summary: str
    cases: tuple[Case, ...]
    measure: Callable[[Options], Measured]

    def run(self, options: Options) -> list[Row]:
        """A row for every case, measured or skipped, in order."""
        found: dict[str, Result | str] = {}
        reason = "was not reached"
        try:
            found.update(self.measure(options))
        except Skipped as error:
            reason = str(error)
        except RunFailed as error:
            reason = f"failed: {error}"
        return [self._row(case, found.get(case.label, reason)) for case in self.cases]

    def _row(self, case: Case, found: Result | str) -> Row:
        if isinstance(found, str):
            return Row(self.name, case, None, found)
        return Row(self.name, case, found)


def check_device(device: str) -> None:
    """Refuse a device that benchmarks do not know."""
    if device not in ("auto", "cpu", "cuda"):
        raise Misconfigured(f"--device {device} is unknown; expected auto, cpu or cuda.")
