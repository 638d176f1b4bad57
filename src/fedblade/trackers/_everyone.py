"""Several listeners of one run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

RoundRecord = dict[str, Any]


class Listener(Protocol):
    """The listener of a run as trackers know it: what a run is set up with is of no interest to them."""

    def on_start(self, setup: Any, history: list[RoundRecord]) -> None:
        """The run begins, or goes on after the rounds in `history`."""

    def on_client(self, round_: int, client: int) -> None:
        """A client of round `round_` has finished."""

    def on_round(self, row: RoundRecord) -> None:
        """A round has been recorded."""

    def on_own_model(self, done: int, total: int) -> None:
        """The own models of `done` of `total` clients have been measured."""

    def on_note(self, text: str) -> None:
        """Something a user should know."""


@dataclass(frozen=True)
class Everyone:
    """Tells every one of `listeners` the same, in their order."""

    listeners: Sequence[Listener]

    def on_start(self, setup: Any, history: list[RoundRecord]) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener.on_start(setup, history)

    def on_client(self, round_: int, client: int) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener.on_client(round_, client)

    def on_round(self, row: RoundRecord) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener.on_round(row)

    def on_own_model(self, done: int, total: int) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener.on_own_model(done, total)

    def on_note(self, text: str) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener.on_note(text)
