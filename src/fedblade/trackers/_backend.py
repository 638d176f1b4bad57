"""The interface of a tracker's package: open, log the numbers of a round, close."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["finished", "failed", "interrupted"]
"""How a run ended."""


@dataclass(frozen=True)
class Session:
    """What a backend is opened with. A run has one session, and one more each time it is resumed.

    `settings` is the run's configuration by dotted key. `run_id` is the tracker's id of the run and `last_round` the
    last round that the tracker has: None and 0 in the first session.
    """

    run_folder: Path
    tracker_folder: Path
    settings: Mapping[str, Any]
    run_id: str | None = None
    last_round: int = 0


@dataclass(frozen=True)
class Opened:
    """An opened backend: the tracker's id of the run, the last round that it has, and notes for the user."""

    run_id: str
    last_round: int = 0
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """One tracker's package. An exception in a method ends the tracking, not the run."""

    def open(self, session: Session) -> Opened:
        """Import the package and begin the tracker's run, or go on with it."""

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Record the numbers of a round."""

    def close(self, status: Status) -> None:
        """Write what is left and end the tracker's run."""


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a round record, without the round's number: trackers have that as the step."""
    numbers = {key: value for key, value in record.items() if isinstance(value, int | float) and key != "round"}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}
