"""A worker: a process that trains runs of a study, one after another, and tells the command what happens.

Lines of JSON arrive at the standard input: first the number of threads, then runs. Lines of JSON leave at what was the
standard output. Everything that is printed goes to the standard error. The end of the input says that the command
needs the worker no longer, or that the command itself was killed: a run that is in training stops and can go on later.
"""

import _thread
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch

from fedblade.config.run_config import complete_config
from fedblade.core.errors import RunFailed
from fedblade.core.listener import RoundRecord, RunListener, RunOverview
from fedblade.core.machine import peak_memory
from fedblade.core.standard_streams import survive_lost_output
from fedblade.core.stop_signals import STOP_SIGNALS
from fedblade.engines.ranks import describe_error
from fedblade.runs import execute

ENDED = 128 + signal.SIGTERM
"""The status of a worker that was told to end."""
_PATIENCE_SECONDS = 60.0
"""A run that was told to end and has not ended after this time is cut off. Its last checkpoint is complete."""
_PAUSE_SECONDS = 0.5
"""Trained clients are reported no more often."""

Message = dict[str, Any]


def main() -> None:
    """Train the runs that arrive, until the input ends."""
    # Ctrl-C and a closed terminal reach the command too, and the command ends its workers.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    survive_lost_output()
    output = Output(os.dup(1))
    os.dup2(2, 1)
    warnings.showwarning = output.send_warning
    requests = Requests()
    first = requests.next()
    if first is not None:
        torch.set_num_threads(first["threads"])
        output.send("ready")
        while request := requests.next():
            _train(request, output)


def _train(request: Message, output: "Output") -> None:
    """Train one run and say how it ended. A run that fails does not end the worker."""
    try:
        config = replace(complete_config(request["config"]), notes=tuple(request["notes"]))
        execute(config, out=Path(request["folder"]), resume=True, listener=Relay(output))
    except RunFailed as error:
        output.send("failed", text=str(error))
    except Exception as error:
        output.send("error", **describe_error(error))
    else:
        output.send("done")


class Output:
    """Messages to the command."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lock = threading.Lock()

    def send(self, kind: str, **facts: Any) -> None:
        """Send one message. If the command is gone, nobody needs the message, and the input has ended too."""
        line = (json.dumps({"kind": kind, **facts}) + "\n").encode()
        with self._lock, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._handle, line) :]

    def send_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,  # noqa: ARG002
        line: str | None = None,
    ) -> None:
        """Send a warning of Python's module `warnings`, so that it is shown once and not once per worker."""
        self.send("warning", text=warnings.formatwarning(message, category, filename, lineno, line).rstrip())


class Relay(RunListener):
    """Sends every call of a listener to the command; trained clients travel several at a time."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._trained: list[tuple[int, int]] = []
        self._last_sent = 0.0

    def on_start(self, run: RunOverview, history: list[RoundRecord]) -> None:
        """Send the overview and the history."""
        self._output.send("start", run=vars(run), history=history)

    def on_client(self, round_: int, client: int) -> None:
        """Send the clients since the last message, unless that message is recent."""
        self._trained.append((round_, client))
        if time.monotonic() - self._last_sent >= _PAUSE_SECONDS:
            self._send_trained()

    def on_round(self, record: RoundRecord) -> None:
        """Send the record, and how much memory the run has needed so far."""
        self._send_trained()
        self._output.send("round", record=record, peak=peak_memory())

    def on_personal_model(self, done: int, total: int) -> None:
        """Send the number of personal models, unless the last message is recent."""
        if done == total or time.monotonic() - self._last_sent >= _PAUSE_SECONDS:
            self._last_sent = time.monotonic()
            self._output.send("personal_model", done=done, total=total)

    def on_note(self, text: str) -> None:
        """Send the note."""
        self._output.send("note", text=text)

    def _send_trained(self) -> None:
        if self._trained:
            self._output.send("clients", trained=self._trained)
            self._trained = []
            self._last_sent = time.monotonic()


def relay_message(message: Message, listener: RunListener) -> None:
    """Make the call that a `Relay` has sent."""
    match message["kind"]:
        case "start":
            listener.on_start(RunOverview(**message["run"]), message["history"])
        case "clients":
            for round_, client in message["trained"]:
                listener.on_client(round_, client)
        case "round":
            listener.on_round(message["record"])
        case "personal_model":
            listener.on_personal_model(message["done"], message["total"])
        case "note":
            listener.on_note(message["text"])


class Requests:
    """The requests of the command, read by a thread of its own. What a run starts gets an empty input."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Message | None] = queue.Queue()
        self._ended, self._in_training = threading.Event(), threading.Event()
        handle, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        threading.Thread(target=self._read, args=(handle,), daemon=True).start()

    def next(self) -> Message | None:
        """Wait for the next request; None at the end of the input, also if a request was left."""
        self._in_training.clear()
        request = self._queue.get()
        # In this order, and in the reverse one in `_read`, so that no run starts after the end of the input.
        self._in_training.set()
        return None if self._ended.is_set() else request

    def _read(self, handle: int) -> None:
        """Read requests until the input ends, then stop the run that is in training."""
        text = b""
        while chunk := os.read(handle, 2**16):
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                self._queue.put(json.loads(line))
        self._ended.set()
        if self._in_training.is_set():
            _thread.interrupt_main(signal.SIGTERM)
        self._queue.put(None)
        time.sleep(_PATIENCE_SECONDS)
        os._exit(ENDED)


def _end(_number: int, _frame: FrameType | None) -> None:
    """Leave the run as a stopped command leaves it. Further signals do not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(ENDED)
