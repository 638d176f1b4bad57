"""The listener that keeps a tracker up to date, and outlives it."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedblade.core.files import write_atomic
from fedblade.trackers._backend import Backend, Sitting, Status, scalars_of
from fedblade.trackers._everyone import RoundRecord

MEMORY = "fedblade.json"
"""File in a tracker's folder that says under which name it has the run, and up to which round."""


class Tracker:
    """Passes the rounds on to a backend, each of them once over all sittings; `say` takes notes.

    What the backend raises is said once, and then it is left alone: the run and its history do not depend on it. The
    next sitting gives it the rounds it missed.
    """

    def __init__(self, name: str, backend: Backend, sitting: Sitting, say: Callable[[str], None]) -> None:
        self._name, self._backend, self._sitting, self._say = name, backend, sitting, say
        self._open = self._broken = False

    def on_start(self, setup: Any, history: list[RoundRecord]) -> None:  # noqa: ARG002
        """Open the tracker and give it the rounds it has not seen."""
        self._guard(lambda: self._begin(history))

    def on_client(self, round_: int, client: int) -> None:
        """Nothing: trackers follow rounds."""

    def on_round(self, row: RoundRecord) -> None:
        """Give the round to the tracker."""
        self._guard(lambda: self._log(row))

    def on_own_model(self, done: int, total: int) -> None:
        """Nothing: own models are measured after the last round."""

    def on_note(self, text: str) -> None:
        """Nothing: notes are for people."""

    def close(self, status: Status) -> None:
        """End the tracker's own run, if it was begun."""
        if self._open:
            self._guard(lambda: self._backend.close(status))

    def _begin(self, history: list[RoundRecord]) -> None:
        self._sitting.own.mkdir(parents=True, exist_ok=True)
        memory = _remembered(self._sitting.own / MEMORY)
        opened = self._backend.open(replace(self._sitting, **memory))
        self._open = True
        self._sitting = replace(self._sitting, identity=opened.identity, logged=opened.logged)
        self._remember()
        for note in opened.notes:
            self._say(_without_passwords(note))
        for row in history:
            self._log(row)

    def _log(self, row: RoundRecord) -> None:
        if row["round"] > self._sitting.logged:
            self._backend.log(row["round"], scalars_of(row))
            self._sitting = replace(self._sitting, logged=row["round"])
            self._remember()

    def _remember(self) -> None:
        memory = {"identity": self._sitting.identity, "logged": self._sitting.logged}
        write_atomic(self._sitting.own / MEMORY, json.dumps(memory) + "\n")

    def _guard(self, step: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            with warnings.catch_warnings():
                # What another package's inside is warned of is nothing a user of this one can mend.
                warnings.simplefilter("ignore")
                step()
        except Exception as error:
            self._broken = True
            reason = _without_passwords(f"{type(error).__name__}: {error}")
            self._say(f"{self._name} stopped ({reason}). The run goes on, and history.jsonl has every round.")


def _remembered(path: Path) -> Mapping[str, Any]:
    """What the last sitting left, nothing if there was none or its file is torn."""
    try:
        memory = json.loads(path.read_text(encoding="utf-8"))
        return {"identity": str(memory["identity"]), "logged": int(memory["logged"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _without_passwords(text: str) -> str:
    """Addresses without the name and password that may stand in them."""
    return re.sub(r"://[^/@\s]+@", "://", text)
