"""What a tracker is to the rest of the library: something that opens, takes the numbers of a round, and closes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["finished", "failed", "interrupted"]
"""How a run ended."""


@dataclass(frozen=True)
class Sitting:
    """What a tracker is opened with: where, the settings by dotted key, and what it left behind the last time.

    `folder` is the run's, `own` the tracker's inside it. `identity` is the tracker's name of the run and `logged` the
    last round it was given, None and 0 in the first sitting.
    """

    folder: Path
    own: Path
    settings: Mapping[str, Any]
    identity: str | None = None
    logged: int = 0


@dataclass(frozen=True)
class Opened:
    """Under which name the tracker has the run, the rounds it already holds, and what a user should know."""

    identity: str
    logged: int = 0
    notes: tuple[str, ...] = field(default=())


class Backend(Protocol):
    """One tracker's package behind three calls; whatever it raises ends the tracking, not the run."""

    def open(self, sitting: Sitting) -> Opened:
        """Import the package and begin the run, or go on with it."""

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Record the numbers of a round."""

    def close(self, status: Status) -> None:
        """Write what is left and end the run."""


def scalars_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a line of the history, without the round, which is the step they belong to."""
    numbers = {key: value for key, value in row.items() if isinstance(value, int | float) and key != "round"}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}
