"""The progress of a run in a notebook: one output that is updated in place. It needs IPython and no ipywidgets."""

import html
import importlib
import sys
import time
from typing import Any

from fedblade.core.listener import RoundRecord, RunListener, RunOverview
from fedblade.runs._ending import STOPPED
from fedblade.runs._overview import Pace, round_facts

_LEAST_SECONDS = 0.2
"""The output is updated no more often than this; a browser gains nothing from more."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported for the answer."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class NotebookProgress(RunListener):
    """One line for the run under the cell: rounds, accuracy, seconds per round, time left; below it the notes."""

    def __init__(self, label: str = "") -> None:
        self._title, self._line, self._notes = label, "", list[str]()
        self._label = label
        self._rounds = 0
        self._pace = Pace()
        self._shown_at = 0.0
        self._handle: Any = None

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Show what the run is."""
        self._title, self._rounds = ": ".join(filter(None, (self._label, run.description))), run.rounds
        self._line = f"round {len(history)}/{run.rounds}"
        self._pace.start()
        self._show()

    def on_round(self, record: RoundRecord) -> None:
        """Show the newest round."""
        left = self._pace.left(record["round"], self._rounds)
        self._line = f"round {record['round']}/{self._rounds}  {round_facts(record)}  {left:.0f} s left"
        if time.monotonic() - self._shown_at >= _LEAST_SECONDS or STOPPED in record:
            self._show()

    def on_personal_model(self, done: int, total: int) -> None:
        """Show how many personal models are measured."""
        self._line = f"personal models of {done}/{total} clients measured"
        if time.monotonic() - self._shown_at >= _LEAST_SECONDS or done == total:
            self._show()

    def on_note(self, text: str) -> None:
        """Show the note."""
        self._notes.append(text)
        self._show()

    def close(self) -> None:
        """Show the last state, which may have come too soon after the one before."""
        self._show()

    def _show(self) -> None:
        lines = [line for line in (self._title, self._line, *self._notes) if line]
        plain = "\n".join(lines)
        content = {"text/plain": plain, "text/html": f"<pre>{html.escape(plain)}</pre>"}
        self._shown_at = time.monotonic()
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
