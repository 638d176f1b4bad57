"""A row of `growth`: a case, and the function that measures both sizes in one run."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.benchmark import Case, Options, Result


@dataclass(frozen=True)
class GrowthRow:
    """A case with the function that measures it."""

    case: Case
    measure: Callable[[Options], Result]
