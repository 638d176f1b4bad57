"""The journal of a deployed run, `deployment.jsonl`: what happened to its nodes, and how each of its starts ended."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import FedbladeError
from fedblade.results import EVENTS, read_lines

STARTED, FINISHED, FAILED, STOPPED, KILLED = "started", "finished", "failed", "stopped", "killed"
"""Events about the run itself: each start of its coordinator, and how that start ended."""
_ENDS = (FINISHED, FAILED, STOPPED, KILLED)


class RunJournal:
    """Appends events to the journal in the folder of a run.

    `begin` is called when this process holds the folder. Before that nothing is written: the journal may be that of
    another process, which is still running.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._has_begun = folder, False

    def begin(self) -> None:
        """Note the start of the run, and first that the start before was killed if it has no end in the journal."""
        self._has_begun = True
        events = [event.get("event") for event in read_lines(self._folder / EVENTS).objects]
        earlier = [event for event in events if event == STARTED or event in _ENDS]
        if earlier and earlier[-1] not in _ENDS:
            self({"event": KILLED, "reason": "the former coordinator ended without an entry here"})
        self({"event": STARTED, "start": 1 + earlier.count(STARTED)})

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Write an event, if this process holds the folder and nobody has removed it."""
        if self._has_begun and self._folder.is_dir():
            with (self._folder / EVENTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time_seconds": time.time(), **event}) + "\n")

    @contextlib.contextmanager
    def noting_end(self) -> Iterator[None]:
        """Note how the run ends: finished, failed for a reason, or stopped."""
        try:
            yield
        except Exception as error:
            known = isinstance(error, FedbladeError)
            reason = str(error) if known else f"a {type(error).__name__}; Flower's log of the run says more"
            self({"event": FAILED, "reason": reason})
            raise
        except BaseException:
            self({"event": STOPPED})
            raise
        self({"event": FINISHED})
