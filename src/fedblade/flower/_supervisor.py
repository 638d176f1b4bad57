"""Keeps the processes of a federation or of a node running until SIGTERM.

A process that ends is started again, after a pause that grows if the process ends early: after a crash the SuperLink
refuses a node until the node's old heartbeat has expired, which takes up to a minute.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.flower import _arguments, _processes
from fedblade.flower._processes import ProcessFailed, is_open
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app_folder import AppFolder, Place
from fedblade.flower.node_folder import NodeFolder, NodeSettings, read_settings

FEDERATION, NODE = "federation", "node"
"""What is supervised: the first argument of this module as a program; the second is the folder."""
_POLL_SECONDS = 0.2
_MAX_PAUSE = 5.0
_STABLE_SECONDS = 20.0
"""A process that ran for this long had started well; the pause before its next start is short again."""
_OPEN_SECONDS = 60.0


class _Terminated(BaseException):
    """SIGTERM arrived."""


@dataclass
class _SupervisedProcess:
    """A process that is kept running."""

    name: str
    arguments: Sequence[str]
    home: Path
    record: ProcessRecord
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    failures: int = 0

    def start(self, place: Place) -> None:
        self.process = _processes.start(place, self.arguments, f"{self.name}.log", self.home)
        self.started_at, self.record.pid = time.monotonic(), self.process.pid

    def check(self, place: Place) -> bool:
        """Start the process again if it has ended and its pause is over; whether the record changed."""
        now = time.monotonic()
        if self.process is not None:
            status = self.process.poll()
            if status is None:
                return False
            self.process, self.record.pid, self.record.status = None, None, status
            self.failures = 0 if now - self.started_at > _STABLE_SECONDS else self.failures + 1
            self.restart_at = now + min(0.5 * 2**self.failures, _MAX_PAUSE)
            _log(f"{self.name} ended with status {status}; starts again in {self.restart_at - now:.1f} s")
            return True
        if now < self.restart_at:
            return False
        self.start(place)
        self.record.restarts += 1
        return True


Groups = Sequence[Sequence[_SupervisedProcess]]
"""Processes in the order in which they end: the next group ends when the one before has ended."""


def supervise_federation(app: AppFolder) -> None:
    """Start the processes of the record, then keep them running until SIGTERM."""
    record = read_record(app)
    if record is None:
        raise Misconfigured(f"'{app.path}' has no record of processes. Start them: fedblade flower up {app.quoted}")
    superlink = _SupervisedProcess("superlink", _arguments.superlink(app, record), app.home, record.superlink)
    executor, front = (
        _SupervisedProcess(name, arguments, app.home, record.helpers.setdefault(name, ProcessRecord(0)))
        for name, arguments in (
            ("server-executor", _arguments.server_executor(app, record)),
            ("front", _arguments.front(app, record)),
        )
    )
    nodes = [each for number in range(1, len(record.nodes) + 1) for each in _node_of(app, record, number)]
    # Nodes end first, so that they can still sign off at the SuperLink, and runs so that they can report their end.
    groups = [[executor, *nodes], [front], [superlink]]
    with _ending(app, groups):
        try:
            _start_coordinator(app, record, superlink, front, executor)
            _start_nodes(app, record, nodes)
            _keep_running(app, groups, lambda: write_record(app, record))
        except FedbladeError as error:
            record.phase, record.error = "failed", str(error)
            write_record(app, record)
            raise


def supervise_node(folder: NodeFolder) -> None:
    """Start the processes of a node, then keep them running until SIGTERM."""
    processes = _node_processes("", folder, read_settings(folder), ProcessRecord(_processes.free_ports(1)[0]))
    _write_secret(folder.secret)
    with _ending(folder, [processes]):
        for process in processes:
            process.start(folder)
        _keep_running(folder, [processes], lambda: None)


def _node_of(app: AppFolder, record: FederationRecord, number: int) -> list[_SupervisedProcess]:
    """The processes of a node of a local federation."""
    folder, name = NodeFolder(app.node(number)), f"node-{number}"
    executor = record.helpers.setdefault(f"{name}-executor", ProcessRecord(0))
    return _node_processes(f"{name}-", folder, read_settings(folder), record.nodes[number - 1], executor, name)


def _start_coordinator(
    app: AppFolder,
    record: FederationRecord,
    superlink: _SupervisedProcess,
    front: _SupervisedProcess,
    executor: _SupervisedProcess,
) -> None:
    host, _, port = record.address.rpartition(":")
    for taken in (is_open(record.superlink.port), is_open(int(port), host)):
        pass
