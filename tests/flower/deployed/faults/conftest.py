"""A federation of real processes around a real app, whose clients wait where a test wants them to."""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _arguments, _processes
from fedblade.flower._record import FederationRecord, read_record
from fedblade.flower._supervisor import NODE
from fedblade.flower.app_folder import AppFolder, find_app
from fedblade.flower.node_folder import NodeFolder
from support.patched_processes import patching
from support.processes import HUNG_SECONDS, wait_for

CLIENTS = 3
_GATES = """\
import time
from pathlib import Path

GATES = Path({gates!r})


def wait_at_gates(module):
    inner = module.Node.answer

    def answer(self, kind, facts, tensors):
        if kind == "train":
            gate = "client-%d-round-%d" % (facts["client"], facts["round"] + 1)
            (GATES / f"reached-{{gate}}").touch()
            while (GATES / f"hold-{{gate}}").exists():
                time.sleep(0.1)
        return inner(self, kind, facts, tensors)

    module.Node.answer = answer


PATCHES = {{"fedblade.flower._node": wait_at_gates}}
"""
"""Before a client trains it says so, and it waits while the test tells it to."""


@dataclass(frozen=True)
class Federation:
    """An app's folder, the gates of its clients and the commands for it."""

    folder: Path
    gates: Path
    out: Path
    environment: dict[str, str]

    @property
    def app(self) -> AppFolder:
        """Where its files are."""
        return find_app(self.folder)

    @property
    def record(self) -> FederationRecord:
        """What its supervisor keeps running."""
        found = read_record(self.app)
        assert found is not None
        return found

    def make(self, **keys: object) -> None:
        """Write the app: one client per node, small and quick unless told otherwise."""
        quick = {"method": "fedavg", "model": "mlp", "num_clients": CLIENTS, "clients_per_round": CLIENTS, "epochs": 1}
        quick |= {"rounds": 3, "evaluation.metrics": '["accuracy"]'}
        settings = [f"{key}={value}" for key, value in (quick | keys).items()]
        self.call("init", *(part for each in settings for part in ("--set", each)))

    def start(self, command: str, *options: str) -> subprocess.Popen[str]:
        """Begin `fedblade flower COMMAND FOLDER OPTIONS`."""
        return subprocess.Popen(
            [sys.executable, "-m", "fedblade", "flower", command, str(self.folder), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | self.environment,
        )  # fmt: skip

    def call(self, command: str, *options: str, status: int = 0) -> str:
        """Give a command and wait for it: what it printed, or its error if it was to fail."""
        return self.ended(self.start(command, *options), status)

    def ended(self, process: subprocess.Popen[str], status: int = 0) -> str:
        """What a command printed, or its error if it was to fail."""
        printed, error = process.communicate(timeout=HUNG_SECONDS)
        assert process.returncode == status, "\n".join((printed, error, *self.events()))
        return printed if status == 0 else error

    def run(self) -> subprocess.Popen[str]:
        """Begin the run."""
        return self.start("run", "--out", str(self.out), "--quiet")

    def hold(self, client: int, round_: int) -> None:
        """Have a client wait before it trains in a round."""
        (self.gates / f"hold-client-{client}-round-{round_}").touch()

    def reached(self, client: int, round_: int) -> None:
        """Wait until a client is about to train in a round; the run must not end before."""
        gate = self.gates / f"reached-client-{client}-round-{round_}"
        wait_for(lambda: gate.is_file() or self._has_ended())
        assert gate.is_file(), self.events()

    def _has_ended(self) -> bool:
        """Whether the run of this federation has ended."""
        last = self.events()[-1:]
        return bool(last) and json.loads(last[0])["event"] in ("finished", "failed", "stopped")

    def let_go(self) -> None:
        """Let all clients go on."""
        for gate in self.gates.glob("hold-*"):
            gate.unlink()

    def rows(self) -> list[dict[str, Any]]:
        """The rounds that are done."""
        path = self.out / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def summary(self) -> dict[str, Any]:
        """What the run says of itself at its end."""
        return dict(json.loads((self.out / "summary.json").read_text()))

    def events(self) -> list[str]:
        """What the server put down of its nodes, line by line."""
        path = self.out / "deployment.jsonl"
        return path.read_text().splitlines() if path.is_file() else []

    def is_ready(self) -> bool:
        """Whether a run could start now."""
        process = self.start("status")
        process.communicate(timeout=60)
        return process.returncode == 0

    def kill_node(self, number: int, signal_: signal.Signals = signal.SIGKILL) -> None:
        """End a node, and all it has started, as if its machine lost power; with SIGTERM, as its operator does."""
        home = f"FLWR_HOME={self.app.node(number) / 'home'}".encode()
        for process in _processes.running(self.app):
            with suppress(OSError):  # it has ended meanwhile
                if home in (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0"):
                    os.kill(process, signal_)

    @contextmanager
    def running_node(self, folder: NodeFolder) -> Iterator[None]:
        """Have the node in a folder run, with a supervisor of its own."""
        arguments = _arguments.module("_supervisor", NODE, str(folder.path))
        process = _processes.start(self.app, arguments, "another.log", self.app.home)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)
            _processes.end_all(folder, 10.0)

    def kill_supervisor(self) -> None:
        """From now on nothing is started again."""
        for process in _processes.running(self.app):
            if _processes.is_supervisor(process):
                os.kill(process, signal.SIGKILL)

    def digest(self, folder: Path | None = None) -> str:
        """The model that a run ended with."""
        return hashlib.sha256(((folder or self.out) / "model.safetensors").read_bytes()).hexdigest()

    def undisturbed(self) -> str:
        """The model of the same run with everything in one process."""
        alone = self.folder.with_name("alone")
        lines = (self.folder / "fedblade.toml").read_text().partition("[flower]")[0]
        config = self.folder.with_name("alone.toml")
        config.write_text(lines)
        command = [sys.executable, "-m", "fedblade", "run", str(config), "--engine", "sequential"]
        subprocess.run([*command, "--out", str(alone), "--quiet"], check=True, capture_output=True)
        return self.digest(alone)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """An app that is not made yet; whatever a test leaves running is ended. One at a time, for deadlines' sake."""
    gates = tmp_path / "gates"
    gates.mkdir()
    environment = patching(tmp_path / "site", _GATES.format(gates=str(gates)))
    found = Federation(tmp_path / "app", gates, tmp_path / "out", environment)
    with (Path(tempfile.gettempdir()) / "fedblade-federation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield found
        finally:
            found.let_go()
            _processes.end_all(AppFolder(found.folder.resolve()), 5.0)
