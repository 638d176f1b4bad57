"""The listener that passes rounds on to a tracker's backend."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedblade.core.files import write_atomic
from fedblade.core.listener import RoundRecord, RunListener, RunOverview
from fedblade.trackers._backend import Backend, Session, Status, scalars_of

PROGRESS = "fedblade.json"
"""File in the tracker's folder: the tracker's id of the run, and the last round that the tracker has."""


class Tracker(RunListener):
    """Passes every round on to a backend once, also over several sessions of a run.

    If the backend raises, a note says so once and the backend is not called again: the run and its history do not
    depend on it. The next session gives the backend the rounds that it missed.
    """

    def __init__(self, name: str, backend: Backend, session: Session, on_note: Callable[[str], None]) -> None:
        self._name, self._backend, self._session, self._show_note = name, backend, session, on_note
        self._is_open = self._has_failed = False

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:  # noqa: ARG002
        """Open the backend and give it the rounds that it does not have."""
        self._try(lambda: self._open(history))

    def on_round(self, record: RoundRecord) -> None:
        """Give the round to the backend."""
        self._try(lambda: self._log(record))

    def close(self, status: Status) -> None:
        """Close the backend if it was opened."""
        if self._is_open:
            self._try(lambda: self._backend.close(status))

    def _open(self, history: list[RoundRecord]) -> None:
        self._session.tracker_folder.mkdir(parents=True, exist_ok=True)
        opened = self._backend.open(replace(self._session, **_read_progress(self._session.tracker_folder / PROGRESS)))
        self._is_open = True
        self._session = replace(self._session, run_id=opened.run_id, last_round=opened.last_round)
        self._write_progress()
        for note in opened.notes:
            self._show_note(_without_passwords(note))
        for record in history:
            self._log(record)

    def _log(self, record: RoundRecord) -> None:
        if record["round"] > self._session.last_round:
            self._backend.log(record["round"], scalars_of(record))
            self._session = replace(self._session, last_round=record["round"])
            self._write_progress()

    def _write_progress(self) -> None:
        progress = {"identity": self._session.run_id, "logged": self._session.last_round}
        write_atomic(self._session.tracker_folder / PROGRESS, json.dumps(progress) + "\n")

    def _try(self, action: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            with warnings.catch_warnings():
                # A user of this library can do nothing about warnings inside the tracker's package.
                warnings.simplefilter("ignore")
                action()
        except Exception as error:
            self._has_failed = True
            reason = _without_passwords(f"{type(error).__name__}: {error}")
            self._show_note(f"{self._name} stopped ({reason}). The run goes on, and history.jsonl has every round.")


def _read_progress(path: Path) -> Mapping[str, Any]:
    """What the last session wrote; empty if there was no session or the file is damaged."""
    try:
        progress = json.loads(path.read_text(encoding="utf-8"))
        return {"run_id": str(progress["identity"]), "last_round": int(progress["logged"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _without_passwords(text: str) -> str:
    """The text with user names and passwords cut out of addresses."""
    return re.sub(r"://[^/@\s]+@", "://", text)
