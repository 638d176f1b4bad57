"""Starts a run of an app, shows its rounds while it goes on, and returns its summary."""

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import FedbladeError, RunFailed
from fedblade.core.files import write_atomic
from fedblade.core.untrusted_text import printable
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app import ENGINE
from fedblade.flower.app_folder import AppFolder
from fedblade.results import EVENTS, RunDirectory
from fedblade.runs import RunListener, overview_of

_POLL_SECONDS = 1.0
_LOST_SECONDS = 60.0
"""How long a SuperLink may be unreachable; its supervisor starts it again within seconds."""
_STOP_SECONDS = 20.0
_FINISHED = "finished"
_MAX_CHARACTERS = 10_000
"""Characters of an event or of a failure that are shown."""


def follow(app: AppFolder, config: RunConfig, out: Path, listener: RunListener, *, resume: bool) -> dict[str, Any]:
    """Start the app's run in the folder `out` and return its summary when it has finished; otherwise raise an error."""
    directory = RunDirectory(out)
    settings = app.local / "run.toml"
    write_atomic(settings, tomli_w.dumps({"run-dir": str(out), "resume": resume}))
    with SuperLink(app) as superlink:
        run_id = superlink.begin(app.path, settings)
        listener.on_note(f"Flower run {run_id}")
        with _stopping(superlink, run_id):
            final = _show_until_end(superlink, run_id, config, directory, listener)
    summary = directory.finished_summary()
    if summary is not None and final["status"] == "finished:completed":
        return summary
    raise RunFailed(_failure(final, out))


def _show_until_end(
    superlink: SuperLink, run_id: str, config: RunConfig, directory: RunDirectory, listener: RunListener
) -> dict[str, Any]:
    """Show rounds as they are written, until Flower says that the run has ended; Flower's description of the run."""
    history = directory.history()
    where = f"engine {ENGINE} on its nodes"
    listener.on_start(overview_of(config, config.dataset.name, where, config.federation.clients_per_round), history)
    num_shown, events = len(history), _NewEvents(directory.path / EVENTS)
    answered_at = time.monotonic()
    while True:
        run: dict[str, Any] | None = None
        try:
            run = superlink.run(run_id)
            answered_at = time.monotonic()
        except RunFailed:
            if time.monotonic() - answered_at > _LOST_SECONDS:
                raise
        for text in events.read():
            listener.on_note(text)
        for record in directory.history():
            if record["round"] > num_shown:
                listener.on_round(record)
                num_shown = record["round"]
        if run is not None and str(run["status"]).startswith(_FINISHED):
            return run
        time.sleep(_POLL_SECONDS)


class _NewEvents:
    """Reads the events that the server adds to its journal from now on, each as a sentence."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = self._size()

    def read(self) -> list[str]:
        """The events since the last call."""
        size = self._size()
        if size <= self._position:
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            complete = file.read(size - self._position).rpartition(b"\n")[0]
        self._position += len(complete) + 1 if complete else 0
        return [text for line in complete.splitlines() if (text := _event_text(line))]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def _event_text(line: bytes) -> str:
    try:
        event = json.loads(line)
        facts = [f"{key} {event[key]}" for key in ("round", "client", "node", "reason") if event.get(key) is not None]
        text = f"{event['event']}: {', '.join(facts)}"
        return printable(text, _MAX_CHARACTERS) if event["event"] != "failed" else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


@contextlib.contextmanager
def _stopping(superlink: SuperLink, run_id: str) -> Iterator[None]:
    """If a signal ends this process, stop the Flower run and wait until it no longer writes to its folder."""
    try:
        yield
    except RunFailed:
        raise
    except BaseException:
        with contextlib.suppress(FedbladeError):
            superlink.stop(run_id)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline and not superlink.run(run_id)["status"].startswith(_FINISHED):
                time.sleep(_POLL_SECONDS)
        raise


def _failure(run: dict[str, Any], out: Path) -> str:
    details = " ".join(str(run.get("status-details") or "").split())
    reason = printable(details.removeprefix("ServerApp failed with exception: "), _MAX_CHARACTERS).rstrip(".")
    if not reason or reason == "N/A":
        reason = f"Flower says '{run['status']}', and the run's summary does not say that it finished"
    return f"the run in '{out}' failed: {reason}. To go on with it, add --resume --out {shlex.quote(str(out))}"
