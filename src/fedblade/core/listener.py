"""Listeners of a run: objects that are told of every round while the run goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RoundRecord = dict[str, Any]
"""One line of the history: the numbers of one round by name."""


@dataclass(frozen=True)
class RunOverview:
    """What a listener knows of a run when it starts."""

    description: str
    """The run in one line: method, data, model, clients, rounds, seed, engine."""
    method: str
    rounds: int
    clients_per_round: int


class RunListener:
    """Is told of every step of a run. The methods here do nothing: override those that you need.

    An exception in a method ends the run.
    """

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """The run starts, or goes on after the rounds in `history`."""

    def on_client(self, round_: int, client: int) -> None:
        """A client has finished its training in round `round_` (counted from 1)."""

    def stops(self, record: RoundRecord) -> bool | str:  # noqa: ARG002
        """Whether the run ends with the round of this record, which is measured and not yet in the history.

        True ends it, and so does a text, which is the reason in the summary. The round is then the last one: all
        metrics of the model are measured, and the run finishes as after its planned rounds.
        """
        return False

    def on_round(self, record: RoundRecord) -> None:
        """A round is complete, and its record is in the history."""

    def on_personal_model(self, done: int, total: int) -> None:
        """After the last round: the personal models of `done` of `total` clients are tuned and measured.

        The first call comes before the first model is tuned.
        """

    def on_note(self, text: str) -> None:
        """A note for the user, such as an assumption about the data or the model."""


class ListenerGroup(RunListener):
    """Passes every call on to all listeners, in their order."""

    def __init__(self, listeners: Sequence[RunListener]) -> None:
        self._listeners = tuple(listeners)

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Pass the call on."""
        for listener in self._listeners:
            listener.on_start(run, history)

    def on_client(self, round_: int, client: int) -> None:
        """Pass the call on."""
        for listener in self._listeners:
            listener.on_client(round_, client)

    def stops(self, record: RoundRecord) -> bool | str:
        """Ask every listener; the first one that ends the run gives the reason."""
        answers = [listener.stops(record) for listener in self._listeners]
        return next((answer for answer in answers if answer), False)

    def on_round(self, record: RoundRecord) -> None:
        """Pass the call on."""
        for listener in self._listeners:
            listener.on_round(record)

    def on_personal_model(self, done: int, total: int) -> None:
        """Pass the call on."""
        for listener in self._listeners:
            listener.on_personal_model(done, total)

    def on_note(self, text: str) -> None:
        """Pass the call on."""
        for listener in self._listeners:
            listener.on_note(text)
