"""What a benchmark is: cases with goals, and a function that measures them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedblade.core.errors import Misconfigured, RunFailed

Unit = Literal["×", "s", "ms", "MB", "difference"]


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
    """One comparison of a benchmark: what is compared, and the goal if there is one."""

    label: str
    what: str
    goal: Goal | None = None
    unit: Unit = "×"


@dataclass(frozen=True)
class Result:
    """The measured value of a case, and the median of every side, under a name that ends with the unit.

    `values` has one value per repetition. `note` says what a reader must know. Where the sides did not do the same
    work, `comparable` is False and the goal counts neither as met nor as missed.
    """

    value: float
    medians: Mapping[str, float] = field(default_factory=dict)
    values: Sequence[float] = ()
    note: str = ""
    comparable: bool = True


@dataclass(frozen=True)
class TableRow:
    """A case of a benchmark with its result, or with the reason why there is none."""

    name: str
    case: Case
    result: Result | None
    skipped: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None without a goal, without a result, or where the sides cannot be compared."""
        if self.case.goal is None or self.result is None or not self.result.comparable:
            return None
        return self.case.goal.met(self.result.value)

    def as_dict(self) -> dict[str, Any]:
        """The row as plain values; `ratio` is None where the value is no ratio."""
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
    """What a user may ask of every benchmark: the number of repetitions (None: the benchmark's default), the device."""

    repeat: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise Misconfigured(f"--device {self.device} is unknown. Choose auto, cpu or cuda.")

    def repetitions(self, default: int) -> int:
        """How often every side runs."""
        return default if self.repeat is None else self.repeat

    def require_cuda(self) -> None:
        """Skip a benchmark that needs a GPU where there is none, or where the user asked for the CPU."""
        import torch

        if self.device == "cpu":
            raise Skipped("needs a GPU; --device cpu was asked for")
        if not torch.cuda.is_available():
            raise Skipped("needs a GPU; torch sees no CUDA device here")

    def require_cpu(self) -> None:
        """Skip a benchmark of the CPU where the user asked for a GPU."""
        if self.device not in ("auto", "cpu"):
            raise Skipped(f"is measured on the CPU; --device {self.device} was asked for")


Measured = Iterable[tuple[str, Result | str]]
"""Labels of cases, each with the result or with the reason why the case cannot run here."""


@dataclass(frozen=True)
class Benchmark:
    """A named family of cases and the function that measures them."""

    name: str
    summary: str
    cases: tuple[Case, ...]
    measure: Callable[[Options], Measured]

    def run(self, options: Options) -> list[TableRow]:
        """A row for every case, measured or skipped, in the order of the cases."""
        measured: dict[str, Result | str] = {}
        reason = "was not reached"
        try:
            measured.update(self.measure(options))
        except Skipped as error:
            reason = str(error)
        except RunFailed as error:
            reason = f"failed: {error}"
        return [self._row(case, measured.get(case.label, reason)) for case in self.cases]

    def _row(self, case: Case, result: Result | str) -> TableRow:
        if isinstance(result, str):
            return TableRow(self.name, case, None, result)
        return TableRow(self.name, case, result)
