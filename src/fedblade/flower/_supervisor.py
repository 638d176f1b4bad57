"""Keeps the SuperLink and the nodes of a local federation running until SIGTERM.

A process that ends is started again, after a pause that grows if the process ends early: after a crash the SuperLink
refuses a node until the node's old heartbeat has expired, which takes up to a minute.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.flower import _processes, admissions, certificates
from fedblade.flower._processes import LOOPBACK, ProcessFailed, is_open
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app_folder import AppFolder

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

    def start(self, app: AppFolder) -> None:
        self.process = _processes.start(app, self.arguments, f"{self.name}.log", self.home)
        self.started_at, self.record.pid = time.monotonic(), self.process.pid

    def check(self, app: AppFolder) -> bool:
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
        self.start(app)
        self.record.restarts += 1
        return True


def supervise(app: AppFolder) -> None:
    """Start the processes of the record, then keep them running until SIGTERM."""
    record = read_record(app)
    if record is None:
        raise Misconfigured(f"'{app.path}' has no record of processes. Start them: fedblade flower up {app.quoted}")
    superlink = _SupervisedProcess("superlink", _superlink_arguments(app, record), app.home, record.superlink)
    nodes = [
        _SupervisedProcess(f"node-{number}", _node_arguments(app, record, number), app.node(number) / "home", node)
        for number, node in enumerate(record.nodes, start=1)
    ]
    try:
        _start_all(app, record, superlink, nodes)
        while True:
            time.sleep(_POLL_SECONDS)
            changed = [process.check(app) for process in (superlink, *nodes)]
            if any(changed):
                write_record(app, record)
    except FedbladeError as error:
        record.phase, record.error = "failed", str(error)
        write_record(app, record)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The nodes end first, so that they can still sign off at the SuperLink.
        for group in (nodes, [superlink]):
            _end(app, [supervised.process for supervised in group if supervised.process is not None])
        _processes.end_all(app, _processes.GRACE_SECONDS)


def _start_all(
    app: AppFolder, record: FederationRecord, superlink: _SupervisedProcess, nodes: Sequence[_SupervisedProcess]
) -> None:
    port = record.superlink.port
    if is_open(port):
        raise ProcessFailed(f"port {port} was taken by another program in the meantime; try again")
    superlink.start(app)
    write_record(app, record)
    _wait_open(superlink, port)
    if record.secure:
        with SuperLink(app) as control:
            for number, node in enumerate(record.nodes, start=1):
                key = app.certificates / f"{certificates.node_key(number)}.pub"
                clients = [int(client) for client in node.clients.split(",")]
                node.node_id = admissions.admit_at(control, app, key, clients).node_id
    for process in nodes:
        process.start(app)
    record.phase = "started"
    write_record(app, record)


def _superlink_arguments(app: AppFolder, record: FederationRecord) -> list[str]:
    security = ["--insecure"]
    if record.secure:
        folder = app.certificates
        security = ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / certificates.CA_CERTIFICATE)]
        security += ["--ssl-certfile", str(folder / certificates.SERVER_CERTIFICATE)]
        security += ["--ssl-keyfile", str(folder / certificates.SERVER_KEY)]
    address = ["--host", LOOPBACK, "--port", str(record.superlink.port)]
    return [_processes.command("flower-superlink"), *address, "--database", str(app.database), *security]


def _node_arguments(app: AppFolder, record: FederationRecord, number: int) -> list[str]:
    security = ["--insecure"]
    if record.secure:
        security = ["--root-certificates", str(app.certificates / certificates.CA_CERTIFICATE)]
        security += ["--auth-supernode-private-key", str(app.certificates / certificates.node_key(number))]
    superlink = ["--superlink", f"{LOOPBACK}:{record.superlink.port}"]
    address = ["--host", LOOPBACK, "--port", str(record.nodes[number - 1].port)]
    settings = ["--node-config", str(app.node(number) / "node.toml")]
    return [_processes.command("flower-supernode"), *superlink, *address, *settings, *security]


def _wait_open(superlink: _SupervisedProcess, port: int) -> None:
    deadline = time.monotonic() + _OPEN_SECONDS
    while not is_open(port):
        status = None if superlink.process is None else superlink.process.poll()
        if status is not None:
            raise ProcessFailed(f"the SuperLink ended with status {status} before it listened")
        if time.monotonic() > deadline:
            raise ProcessFailed(f"the SuperLink does not listen on port {port} after {_OPEN_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _end(app: AppFolder, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    _processes.end(app, [process.pid for process in processes], _processes.GRACE_SECONDS)
    for process in processes:
        process.wait()


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def main() -> None:
    """Supervise the local federation of the app in the folder that is given."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        supervise(AppFolder(Path(sys.argv[1])))
    except _Terminated:
        _log("ended by SIGTERM")
    except FedbladeError as error:
        _log(f"error: {error}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
