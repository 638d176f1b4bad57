"""Several listeners of one run as one listener."""

from collections.abc import Sequence

from fedblade.core.listener import RoundRecord, RunListener, RunOverview


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
