"""Keeps the SuperLink and the nodes of a rehearsal running until it is told to end.

A node that ends is started again, later each time it ends early: after a crash the SuperLink refuses it until its old
heartbeat has lapsed, which takes up to a minute.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedblade.core.errors import FedbladeError
from fedblade.flower import _certs, _processes
from fedblade.flower._control import SuperLink
from fedblade.flower._place import Place
from fedblade.flower._ports import LOOPBACK, is_open
from fedblade.flower._record import Kept, Plan, Record, read_plan, write_record

_LOOK_SECONDS = 0.2
_LONGEST_PAUSE = 5.0
_LASTING_SECONDS = 20.0
"""A process that ran for this long did start; its next end is a new story."""
_OPEN_SECONDS = 60.0


class _Ended(BaseException):
    """The supervisor was told to end."""


@dataclass
class _Ward:
    """A process that is kept running."""

    name: str
    arguments: Sequence[str]
    home: Path
    kept: Kept
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    due: float = 0.0
    failures: int = 0

    def start(self, place: Place) -> None:
        self.process = _processes.start(place, self.arguments, f"{self.name}.log", self.home)
        self.began, self.kept.pid = time.monotonic(), self.process.pid

    def look(self, place: Place) -> bool:
        """Start the process again if it ended and its pause is over; whether anything changed."""
        now = time.monotonic()
        if self.process is not None:
            status = self.process.poll()
            if status is None:
                return False
            self.process, self.kept.pid, self.kept.status = None, None, status
            self.failures = 0 if now - self.began > _LASTING_SECONDS else self.failures + 1
            self.due = now + min(0.5 * 2**self.failures, _LONGEST_PAUSE)
            _say(f"{self.name} ended with status {status}; starts again in {self.due - now:.1f} s")
            return True
        if now < self.due:
            return False
        self.start(place)
        self.kept.restarts += 1
        return True


def supervise(place: Place) -> None:
    """Start everything, then watch over it until told to end."""
    plan = read_plan(place)
    record = Record.planned(plan)
    superlink = _Ward("superlink", _superlink_arguments(place, plan), place.home, record.superlink)
    nodes = [
        _Ward(f"node-{number}", _node_arguments(place, plan, number), place.node(number) / "home", kept)
        for number, kept in enumerate(record.nodes, start=1)
    ]
    try:
        if is_open(plan.port):
            raise _processes.ProcessFailed(f"port {plan.port} was taken by another program in the meantime; try again")
        superlink.start(place)
        write_record(place, record)
        _wait_open(superlink, plan.port)
        if plan.secure:
            _register(place, record)
        for node in nodes:
            node.start(place)
        record.phase = "started"
        write_record(place, record)
        while True:
            time.sleep(_LOOK_SECONDS)
            changed = [ward.look(place) for ward in (superlink, *nodes)]
            if any(changed):
                write_record(place, record)
    except FedbladeError as error:
        record.phase, record.error = "failed", str(error)
        write_record(place, record)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Nodes first, so that they can still say goodbye.
        for group in (nodes, [superlink]):
            _end(place, [ward.process for ward in group if ward.process is not None])
        _processes.end_all(place, _processes.GRACE_SECONDS)


def _superlink_arguments(place: Place, plan: Plan) -> list[str]:
    certs = place.certs
    safety = ["--insecure"]
    if plan.secure:
        safety = ["--enable-supernode-auth", "--ssl-ca-certfile", str(certs / _certs.CA_CERTIFICATE)]
        safety += ["--ssl-certfile", str(certs / _certs.SERVER_CERTIFICATE)]
        safety += ["--ssl-keyfile", str(certs / _certs.SERVER_KEY)]
    place_of_service = ["--host", LOOPBACK, "--port", str(plan.port), "--database", str(place.database)]
    return [_processes.command("flower-superlink"), *place_of_service, *safety]


def _node_arguments(place: Place, plan: Plan, number: int) -> list[str]:
    node = plan.nodes[number - 1]
    safety = ["--insecure"]
    if plan.secure:
        safety = ["--root-certificates", str(place.certs / _certs.CA_CERTIFICATE)]
        safety += ["--auth-supernode-private-key", str(place.certs / _certs.node_key(number))]
    where = ["--superlink", f"{LOOPBACK}:{plan.port}", "--host", LOOPBACK, "--port", str(node.port)]
    settings = ["--node-config", str(place.node(number) / "node.toml")]
    return [_processes.command("flower-supernode"), *where, *settings, *safety]


def _wait_open(superlink: _Ward, port: int) -> None:
    deadline = time.monotonic() + _OPEN_SECONDS
    while not is_open(port):
        status = None if superlink.process is None else superlink.process.poll()
        if status is not None:
            raise _processes.ProcessFailed(f"the SuperLink ended with status {status} before it listened")
        if time.monotonic() > deadline:
            raise _processes.ProcessFailed(f"the SuperLink does not listen on port {port} after {_OPEN_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _register(place: Place, record: Record) -> None:
    with SuperLink(place) as superlink:
        for number, node in enumerate(record.nodes, start=1):
            node.node_id = superlink.register(place.certs / f"{_certs.node_key(number)}.pub")


def _end(place: Place, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    _processes.end(place, [process.pid for process in processes], _processes.GRACE_SECONDS)
    for process in processes:
        process.wait()


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


def main() -> None:
    """Supervise the rehearsal of the app in the folder that is given."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        supervise(Place(Path(sys.argv[1])))
    except _Ended:
        _say("ended as asked")
    except FedbladeError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
