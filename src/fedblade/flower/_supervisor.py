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
from fedblade.core.files import write_atomic
from fedblade.flower import _arguments, _processes, admissions
from fedblade.flower._flwr_internals.database import drop_messages
from fedblade.flower._operator_pages import operator_pages
from fedblade.flower._processes import LOOPBACK, ProcessFailed, is_open, rotate_logs
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app_folder import AppFolder, Place
from fedblade.flower.node_folder import NodeFolder, client_numbers, read_settings

FEDERATION, NODE = "federation", "node"
"""What is supervised: the first argument of this module as a program; the second is the folder."""
_POLL_SECONDS = 0.2
_MAX_PAUSE = 5.0
_STABLE_SECONDS = 20.0
"""A process that ran for this long had started well; the pause before its next start is short again."""
_OPEN_SECONDS = 60.0
_LOG_SECONDS = 10.0
"""Seconds between two looks at the sizes of the logs."""


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


def supervise_federation(app: AppFolder) -> None:
    """Start the processes of the record, then keep them running until SIGTERM."""
    record = read_record(app)
    if record is None:
        raise Misconfigured(f"'{app.path}' has no record of processes. Start them: fedblade flower up {app.quoted}")
    superlink, front, executor = coordinator = [
        _SupervisedProcess("superlink", _arguments.superlink(app, record), app.home, record.superlink),
        _SupervisedProcess("front", _arguments.front(app, record), app.home, record.helper("front")),
        _SupervisedProcess(
            "server-executor", _arguments.server_executor(app, record), app.home, record.helper("server-executor")
        ),
    ]
    nodes: list[_SupervisedProcess] = []
    for number, node in enumerate(record.nodes, start=1):
        records = (node, record.helper(f"node-{number}-executor"))
        nodes += _node_processes(f"node-{number}-", NodeFolder(app.node(number)), records)
    # Runs and nodes end first, so that they can still sign off at the SuperLink.
    with _ending(app, [[executor, *nodes], [front], [superlink]]):
        try:
            drop_messages(app.database)
            _start_coordinator(app, record, coordinator)
            _start_nodes(app, record, nodes)
            with operator_pages(app, record):
                write_record(app, record)
                _keep_running(app, [*coordinator, *nodes], lambda: write_record(app, record))
        except FedbladeError as error:
            record.phase, record.error = "failed", str(error)
            write_record(app, record)
            raise


def supervise_node(folder: NodeFolder) -> None:
    """Start the processes of a node, then keep them running until SIGTERM."""
    records = (ProcessRecord(_processes.free_ports(1)[0]), ProcessRecord(0))
    processes = _node_processes("", folder, records)
    with _ending(folder, [processes]):
        _write_secret(folder.secret)
        for process in processes:
            process.start(folder)
        _keep_running(folder, processes, lambda: None)


def _start_coordinator(app: AppFolder, record: FederationRecord, processes: Sequence[_SupervisedProcess]) -> None:
    """Start the SuperLink, the front and the executor, one when the one before listens."""
    superlink, front, executor = processes
    host, _, port = record.address.rpartition(":")
    doors = ((superlink, "SuperLink", LOOPBACK, record.superlink.port), (front, "front", host, int(port)))
    for *_, place, number in doors:
        if is_open(number, place):
            raise ProcessFailed(f"port {number} is taken by another program. End it or choose another port")
    _write_secret(app.secret)
    for process, name, place, number in doors:
        process.start(app)
        write_record(app, record)
        _wait_open(process, name, place, number)
        if process is superlink:
            admissions.catch_up(app, _log)
    executor.start(app)


def _start_nodes(app: AppFolder, record: FederationRecord, processes: Sequence[_SupervisedProcess]) -> None:
    """Admit the nodes of a local federation and start their processes."""
    if record.secure and record.nodes:
        with SuperLink(app) as control:
            for number, node in enumerate(record.nodes, start=1):
                clients = client_numbers(node.clients, "the record")
                key = NodeFolder(app.node(number)).public_key
                node.node_id = admissions.admit_at(control, app, key, clients).node_id
    for number in range(1, len(record.nodes) + 1):
        _write_secret(NodeFolder(app.node(number)).secret)
    for process in processes:
        process.start(app)
    record.phase = "started"
    write_record(app, record)


def _node_processes(prefix: str, folder: NodeFolder, records: Sequence[ProcessRecord]) -> list[_SupervisedProcess]:
    """The SuperNode and the executor of a node; `prefix` comes before the names of their logs."""
    settings, (supernode, executor) = read_settings(folder), records
    return [
        _SupervisedProcess(
            f"{prefix}supernode", _arguments.supernode(folder, settings, supernode.port), folder.home, supernode
        ),
        _SupervisedProcess(
            f"{prefix}executor", _arguments.client_executor(folder, supernode.port), folder.home, executor
        ),
    ]


def _keep_running(place: Place, processes: Sequence[_SupervisedProcess], note: Callable[[], None]) -> None:
    """Start processes again when they end, and keep their logs small; `note` is called after every change."""
    looked_at_logs = time.monotonic()
    while True:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - looked_at_logs > _LOG_SECONDS:
            rotate_logs(place.logs)
            looked_at_logs = time.monotonic()
        changed = [process.check(place) for process in processes]
        if any(changed):
            note()


@contextlib.contextmanager
def _ending(place: Place, groups: Sequence[Sequence[_SupervisedProcess]]) -> Iterator[None]:
    """At the end, end the processes, one group after the other, and what they have started."""
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for group in groups:
            running = [supervised.process for supervised in group if supervised.process is not None]
            _processes.end(place, [process.pid for process in running], _processes.GRACE_SECONDS)
            for process in running:
                process.wait()
        _processes.end_all(place, _processes.GRACE_SECONDS)


def _wait_open(process: _SupervisedProcess, name: str, host: str, port: int) -> None:
    deadline = time.monotonic() + _OPEN_SECONDS
    while not is_open(port, host):
        status = None if process.process is None else process.process.poll()
        if status is not None:
            raise ProcessFailed(f"the {name} ended with status {status} before it listened")
        if time.monotonic() > deadline:
            raise ProcessFailed(f"the {name} does not listen on port {port} after {_OPEN_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _write_secret(path: Path) -> None:
    """Write a new secret, which no other user can read at any moment."""
    write_atomic(path, secrets.token_bytes(32), 0o600)


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def main() -> None:
    """Supervise the federation of the app, or the node, in the folder that is given."""
    os.umask(_processes.PRIVATE_MASK)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    kind, folder = sys.argv[1], Path(sys.argv[2])
    try:
        supervise_node(NodeFolder(folder)) if kind == NODE else supervise_federation(AppFolder(folder))
    except _Terminated:
        _log("ended by a signal")
    except FedbladeError as error:
        _log(f"error: {error}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
