"""A worker as the command sees it: a process that takes runs and sends messages."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from fedblade.studies._planned_run import PlannedRun
from fedblade.studies._worker import ENDED, Message

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fedblade.studies._worker import main; main()"
"""A worker finds the modules that the command finds."""
_LAST_SECONDS = 1.0
"""How long to wait for the end of what a dead process printed: a process that it started may keep its output open."""

Inbox = queue.Queue[tuple["Worker", Message]]


class Worker:
    """A process that trains runs, one after another. Its messages go to `inbox`; the last one is `gone`.

    Two kinds of messages are made here: `text` is what the process prints, and `gone` says why the process has ended.
    """

    def __init__(self, environment: Mapping[str, str], threads: int, inbox: Inbox) -> None:
        options = [f"-W{option}" for option in sys.warnoptions]
        self._process = subprocess.Popen(  # noqa: S603 - the command has no part from outside
            [sys.executable, "-u", "-P", *options, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        self._inbox = inbox
        self._last_line = ""
        self._send({"threads": threads})
        printed = threading.Thread(target=self._read_text, daemon=True)
        printed.start()
        threading.Thread(target=self._read_messages, args=(printed,), daemon=True).start()

    def train(self, run: PlannedRun) -> None:
        """Train a run; messages say how it goes on and how it ends."""
        self._send({"folder": str(run.folder), "config": run.config.table(), "notes": list(run.config.notes)})

    def end(self, *, at_once: bool = False) -> None:
        """Tell the process to end. A run that is in training stops and can go on later.

        `at_once` is for a process that has had no run yet: as long as it loads torch, it reads nothing.
        """
        if at_once:
            self._process.terminate()
        with contextlib.suppress(BrokenPipeError):
            _opened(self._process.stdin).close()

    def _send(self, request: Mapping[str, Any]) -> None:
        # If the process is gone, its last message will say so.
        with contextlib.suppress(BrokenPipeError):
            _opened(self._process.stdin).write((json.dumps(request) + "\n").encode())

    def _read_messages(self, printed: threading.Thread) -> None:
        """Pass on what the process reports, and its end."""
        text = b""
        with _opened(self._process.stdout) as output:
            while chunk := os.read(output.fileno(), 2**16):
                # A process that is killed may leave half a line, which is dropped.
                *lines, text = (text + chunk).split(b"\n")
                for line in lines:
                    self._inbox.put((self, json.loads(line)))
        status = self._process.wait()
        printed.join(_LAST_SECONDS)
        self._inbox.put((self, {"kind": "gone", "reason": self._reason(status)}))

    def _read_text(self) -> None:
        """Pass on what the process prints, in whole lines."""
        text = b""
        with _opened(self._process.stderr) as output:
            while chunk := os.read(output.fileno(), 2**16):
                *lines, text = (text + chunk).split(b"\n")
                if lines:
                    self._print(b"\n".join(lines))
        if text:
            self._print(text)

    def _print(self, raw: bytes) -> None:
        text = raw.decode(errors="replace")
        self._last_line = next((line for line in reversed(text.splitlines()) if line.strip()), self._last_line)
        self._inbox.put((self, {"kind": "text", "text": text}))

    def _reason(self, status: int) -> str:
        """Why the process has ended, in words."""
        number = -status if status < 0 else signal.SIGTERM if status == ENDED else None
        if number is not None:
            name = signal.Signals(number).name
            causes = {"SIGKILL": ": by the system if memory ran out, or by somebody else"}
            return f"its process was ended by {name}{causes.get(name, '')}"
        return f"its process ended with status {status}{f': {self._last_line}' if self._last_line else ''}"


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    """One of the three pipes to a process, which were all asked for."""
    if stream is None:
        raise RuntimeError("the process was started without a pipe")
    return stream
