"""Starts a run of an app, shows its rounds while it goes on, and returns its summary."""

import contextlib
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import FedbladeError, RunFailed
from fedblade.core.files import write_atomic
from fedblade.core.untrusted_text import printable
from fedblade.flower._journal import FAILED, FINISHED, STARTED
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app import ENGINE
from fedblade.flower.app_folder import AppFolder
from fedblade.results import EVENTS, RunDirectory, read_lines
from fedblade.runs import RunListener, overview_of

_POLL_SECONDS = 1.0
_LOST_SECONDS = 60.0
"""How long a SuperLink may be unreachable; its supervisor starts it again within seconds."""
_STOP_SECONDS = 20.0
_ENDED, _STOPPED = "finished", "finished:stopped"
"""The start of a Flower run's status when the run has ended, well or not, and the status of a run that was stopped."""
_MAX_CHARACTERS = 10_000
"""Characters of an event or of a failure that are shown."""


def follow(app: AppFolder, config: RunConfig, out: Path, listener: RunListener, *, resume: bool) -> dict[str, Any]:
    """Start the app's run in the folder `out` and return its summary when it has finished; otherwise raise an error."""
    directory = RunDirectory(out)
    settings = app.last_run
    write_atomic(settings, tomli_w.dumps({"run-dir": str(out), "resume": resume}))
    with SuperLink(app) as superlink:
        run_id = superlink.begin(app.path, settings)
        listener.on_note(f"Flower run {run_id}")
        with _stopping(app, run_id):
            final = _show_until_end(superlink, run_id, config, directory, listener)
    summary = directory.finished_summary()
    if summary is not None and final["status"] == "finished:completed":
        return summary
    ended = "was stopped" if final["status"] == _STOPPED else f"failed: {_reason(final)}"
    raise RunFailed(f"the run in '{out}' {ended}. To go on with it, add --resume --out {shlex.quote(str(out))}")


def _show_until_end(
    superlink: SuperLink, run_id: str, config: RunConfig, directory: RunDirectory, listener: RunListener
) -> dict[str, Any]:
    """Show rounds as they are written, until Flower says that the run has ended; Flower's description of the run."""
    history = directory.history()
    where = f"engine {ENGINE} on its nodes"
    listener.on_start(overview_of(config, config.dataset.name, where, config.federation.clients_per_round), history)
    journal = directory.path / EVENTS
    num_shown, num_told = len(history), len(read_lines(journal).objects)
    answered_at = time.monotonic()
    while True:
        run: dict[str, Any] | None = None
        try:
            run = superlink.run(run_id)
            answered_at = time.monotonic()
        except RunFailed as error:
            if time.monotonic() - answered_at > _LOST_SECONDS:
                raise RunFailed(
                    f"the SuperLink has not answered for {_LOST_SECONDS:.0f} s: {str(error).removesuffix('.')}. When "
                    f"'fedblade flower status' finds it again, go on with the run: add --resume --out "
                    f"{shlex.quote(str(directory.path))}"
                ) from error
        events = read_lines(journal).objects
        for event in events[num_told:]:
            # This process starts the run and tells its end; lengths of updates are for the report.
            if event.get("event") not in (STARTED, FINISHED, FAILED, "updates"):
                listener.on_note(_event_text(event))
        num_told = len(events)
        for record in directory.history():
            if record["round"] > num_shown:
                listener.on_round(record)
                num_shown = record["round"]
        if run is not None and str(run["status"]).startswith(_ENDED):
            return run
        time.sleep(_POLL_SECONDS)


def _event_text(event: Mapping[str, Any]) -> str:
    """An event of the journal as a sentence."""
    facts = [f"{key} {event[key]}" for key in ("round", "client", "node", "reason") if event.get(key) is not None]
    return printable(f"{event.get('event')}{': ' if facts else ''}{', '.join(facts)}", _MAX_CHARACTERS)


@contextlib.contextmanager
def _stopping(app: AppFolder, run_id: str) -> Iterator[None]:
    """If a signal ends this process, stop the Flower run and wait until it no longer writes to its folder."""
    try:
        yield
    except RunFailed:
        raise
    except BaseException:
        with contextlib.suppress(FedbladeError), SuperLink(app) as superlink:
            superlink.stop(run_id)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline and not superlink.run(run_id)["status"].startswith(_ENDED):
                time.sleep(_POLL_SECONDS)
        raise


def _reason(run: dict[str, Any]) -> str:
    """Why a run failed."""
    details = " ".join(str(run.get("status-details") or "").split())
    reason = printable(details.removeprefix("ServerApp failed with exception: "), _MAX_CHARACTERS).rstrip(".")
    if reason and reason != "N/A":
        return reason
    return f"Flower says '{run['status']}', and the run's summary does not say that it finished"
