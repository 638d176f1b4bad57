"""A coordinator and a hospital's node as the documentation starts them, among folders and users that mean harm."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _processes
from fedblade.flower._processes import LOOPBACK, free_ports
from fedblade.flower._record import FederationRecord, read_record
from fedblade.flower.app_folder import AppFolder, find_app
from fedblade.flower.node_folder import NodeFolder
from support.processes import HUNG_SECONDS, wait_for

TINY = {
    "method": "fedavg", "model": "mlp", "num_clients": 1, "clients_per_round": 1, "rounds": 1, "epochs": 1,
    "evaluation.metrics": '["accuracy"]', "flower.wait_seconds": 60,
}  # fmt: skip
_PLANTED = "import pathlib\n\npathlib.Path({marker!r}).touch()\nraise SystemExit('planted')\n"
_FOREIGN = """\
import pathlib

from flwr.{half}app import {name}

pathlib.Path({marker!r}).touch()
app = {name}()
"""
_PYPROJECT = """\
[project]
name = "foreign"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "stranger"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
"""


@dataclass(frozen=True)
class Deployment:
    """Where the coordinator and the node are; a marker file appears if foreign or planted code has run."""

    folder: Path
    app: AppFolder
    node: NodeFolder
    certificates: Path

    @property
    def record(self) -> FederationRecord:
        """What the coordinator's supervisor keeps running."""
        found = read_record(self.app)
        assert found is not None
        return found

    @property
    def node_port(self) -> int:
        """The port of the node's own API."""
        for process in _processes.running(self.node):
            words = (Path("/proc") / str(process) / "cmdline").read_bytes().decode().split("\0")
            if "fedblade.flower._supernode_process" in words:
                return int(words[words.index("--port") + 1])
        raise AssertionError("the node has no SuperNode")

    @property
    def marks(self) -> list[str]:
        """What has run and should not have run."""
        return sorted(path.name for path in (self.folder / "marks").iterdir())

    def foreign_app(self, folder: Path) -> Path:
        """An app whose code leaves a mark when it is imported."""
        folder.mkdir()
        (folder / "pyproject.toml").write_text(_PYPROJECT)
        for half in ("server", "client"):
            marker = str(self.folder / "marks" / f"foreign-{half}")
            text = _FOREIGN.format(half=half, name=f"{half.capitalize()}App", marker=marker)
            (folder / f"{half}_app.py").write_text(text)
        return folder


def call(*arguments: str, cwd: Path) -> str:
    """Give a command of `fedblade flower` and wait for it: what it printed."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "fedblade"), "flower", *arguments],
        cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=HUNG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for_status(app: Path, cwd: Path) -> None:
    """Wait until a run could start."""
    command = [str(Path(sys.executable).parent / "fedblade"), "flower", "status", str(app)]
    wait_for(lambda: not subprocess.run(command, cwd=cwd, env=_environment(), capture_output=True).returncode)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A coordinator with one admitted node; modules named `flwr` and `fedblade` are planted wherever processes run."""
    folder = tmp_path_factory.mktemp("doors")
    (folder / "marks").mkdir()
    port, settings = free_ports(1)[0], [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    call("init", "app", *settings, cwd=folder)
    app, node = find_app(folder / "app"), NodeFolder(folder / "node")
    for place in (folder, app.path):
        _plant(place, folder / "marks")
    call("certs", "certs", "--host", LOOPBACK, cwd=folder)
    pin = call("digest", "app", cwd=folder).split()[0]
    address = f"{LOOPBACK}:{port}"
    join = ["join", "node", "--coordinator", address, "--ca", "certs/ca.crt", "--client", "0", "--pin", pin]
    call(*join, cwd=folder)
    _plant(node.path, folder / "marks")
    services = [_service(folder, ["serve", "app", "--host", LOOPBACK, "--port", str(port), "--certs", "certs"])]
    try:
        wait_for_status(app.path, folder)
        call("admit", "node/node.key.pub", "app", "--client", "0", cwd=folder)
        services.append(_service(folder, ["node", "node"]))
        wait_for_status(app.path, folder)
        yield Deployment(folder, app, node, folder / "certs")
        for service in services:
            service.terminate()
        assert [service.wait(40) for service in services] == [0, 0]
        assert _processes.running(app) == _processes.running(node) == []
    finally:
        _processes.end_all(node, 5.0)
        _processes.end_all(app, 5.0)


def _plant(folder: Path, marks: Path) -> None:
    for name in ("flwr", "fedblade", "torch"):
        (folder / f"{name}.py").write_text(_PLANTED.format(marker=str(marks / f"planted-{name}")))


def _service(folder: Path, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    command = [str(Path(sys.executable).parent / "fedblade"), "flower", *arguments]
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=folder, env=_environment(), stdout=log, stderr=subprocess.STDOUT, umask=0o022
        )


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
