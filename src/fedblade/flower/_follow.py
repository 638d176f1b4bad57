"""A run of an app: started, shown while it goes on, and judged by what it left behind."""

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import FedbladeError, RunFailed
from fedblade.core.files import write_atomic
from fedblade.engines.nodes import printable
from fedblade.flower._control import SuperLink
from fedblade.flower._place import Place, toml_table
from fedblade.results import EVENTS, HISTORY, RunDirectory
from fedblade.runs import RoundRecord, RunListener, overview_of

_LOOK_SECONDS = 0.25
_ASK_SECONDS = 1.0
_LOST_SECONDS = 60.0
"""How long a SuperLink may be gone: it is started again within seconds."""
_STOP_SECONDS = 20.0
_FINISHED = "finished"
_LONGEST = 10_000
"""Characters of what is shown of an event or of a failure."""


def follow(place: Place, config: RunConfig, out: Path, listener: RunListener, *, resume: bool) -> dict[str, Any]:
    """Start the app's run in `out` and come back with its summary when it has finished; all else is an error."""
    directory = RunDirectory(out)
    settings = place.own / "run.toml"
    write_atomic(settings, toml_table({"run-dir": str(out), "resume": resume}))
    with SuperLink(place) as superlink:
        number = superlink.begin(place.folder, settings)
        listener.on_note(f"Flower run {number}")
        with _stopped_with_us(superlink, number):
            ended = _watch(superlink, number, config, directory, listener)
    summary = directory.finished_summary()
    if summary is not None and ended["status"] == "finished:completed":
        return summary
    raise RunFailed(_why(ended, out))


def _watch(
    superlink: SuperLink, number: str, config: RunConfig, directory: RunDirectory, listener: RunListener
) -> dict[str, Any]:
    """Show rounds as they are written until Flower says that the run has ended; what it says then."""
    history = directory.history()
    where = "engine flower on its nodes"
    listener.on_start(overview_of(config, config.dataset.name, where, config.federation.clients_per_round), history)
    rounds, events = _Rounds(directory, len(history)), _Events(directory.path / EVENTS)
    asked = heard = time.monotonic()
    while True:
        told: dict[str, Any] | None = None
        if time.monotonic() - asked >= _ASK_SECONDS:
            try:
                told = superlink.run(number)
                heard = time.monotonic()
            except RunFailed:
                if time.monotonic() - heard > _LOST_SECONDS:
                    raise
            asked = time.monotonic()
        for text in events.new():
            listener.on_note(text)
        for row in rounds.new():
            listener.on_round(row)
        if told is not None and str(told["status"]).startswith(_FINISHED):
            return told
        time.sleep(_LOOK_SECONDS)


class _Rounds:
    """The rounds after those that were shown, as the server writes them."""

    def __init__(self, directory: RunDirectory, shown: int) -> None:
        self._directory, self._shown = directory, shown
        self._stamp: tuple[int, int] | None = None

    def new(self) -> list[RoundRecord]:
        """The rounds since the last look; the file is read again only when it has changed."""
        try:
            state = (self._directory.path / HISTORY).stat()
            if (state.st_mtime_ns, state.st_size) == self._stamp:
                return []
            self._stamp = (state.st_mtime_ns, state.st_size)
            rows = [row for row in self._directory.rows(HISTORY) if int(row["round"]) > self._shown]
        except OSError:
            return []
        self._shown = max((int(row["round"]) for row in rows), default=self._shown)
        return rows


class _Events:
    """What the server writes of its nodes, in words, from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._size()

    def new(self) -> list[str]:
        """The events since the last look."""
        size = self._size()
        if size <= self._seen:
            return []
        with self._path.open("rb") as file:
            file.seek(self._seen)
            whole = file.read(size - self._seen).rpartition(b"\n")[0]
        self._seen += len(whole) + 1 if whole else 0
        return [text for line in whole.splitlines() if (text := _in_words(line))]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def _in_words(line: bytes) -> str:
    try:
        event = json.loads(line)
        facts = [f"{key} {event[key]}" for key in ("round", "client", "node", "reason") if event.get(key) is not None]
        return printable(f"{event['event']}: {', '.join(facts)}", _LONGEST) if event["event"] != "failed" else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


@contextlib.contextmanager
def _stopped_with_us(superlink: SuperLink, number: str) -> Iterator[None]:
    """Stop the Flower run when this process is stopped, and wait until it has let go of the folder."""
    try:
        yield
    except RunFailed:
        raise
    except BaseException:
        with contextlib.suppress(FedbladeError):
            superlink.stop(number)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline and not superlink.run(number)["status"].startswith(_FINISHED):
                time.sleep(_LOOK_SECONDS)
        raise


def _why(ended: dict[str, Any], out: Path) -> str:
    details = " ".join(str(ended.get("status-details") or "").split())
    said = printable(details.removeprefix("ServerApp failed with exception: "), _LONGEST).rstrip(".")
    if not said or said == "N/A":
        said = f"Flower says '{ended['status']}', and the run's summary does not say that it finished"
    return f"the run in '{out}' failed: {said}. To go on with it, add --resume --out {shlex.quote(str(out))}"
