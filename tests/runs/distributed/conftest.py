"""Processes as torchrun starts them, on this machine alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[2]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
# The scripts in tests/support import each other as tests do.
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


@dataclass
class Launch:
    """Processes that were started together."""

    process: subprocess.Popen[str]
    out: str = ""
    err: str = ""

    def end(self, seconds: float = 120) -> "Launch":
        """Wait until all are gone."""
        self.out, self.err = self.process.communicate(timeout=seconds)
        return self

    @property
    def status(self) -> int:
        return self.process.returncode

    def done(self) -> "Launch":
        """End well."""
        self.end()
        assert self.status == 0, self.out + self.err
        return self

    def stop(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.communicate(timeout=40)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def ranks(self) -> dict[int, int]:
        """The process of each rank, once all have been started."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = {}
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit() and _parent(folder) == self.process.pid:
                    rank = _environment(folder).get("RANK")
                    if rank is not None:
                        found[int(rank)] = int(folder.name)
            if found and len(found) == int(_environment(Path(f"/proc/{next(iter(found.values()))}"))["WORLD_SIZE"]):
                return found
            time.sleep(0.02)
        raise AssertionError("no ranks")


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _environment(folder: Path) -> dict[str, str]:
    try:
        parts = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(part.partition("=")[::2] for part in parts if "=" in part)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Callable[[Path], Callable[..., Launch]]]:
    """Start processes in a folder; none is left when the tests of a module have ended."""
    launches: list[Launch] = []

    def start(folder: Path, processes: int, *arguments: Any, **env: str) -> Launch:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        process = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=os.environ | ENVIRONMENT | env, start_new_session=True,
        )  # fmt: skip
        launches.append(Launch(process))
        return launches[-1]

    yield lambda folder: partial(start, folder)
    for launch in launches:
        launch.stop()


@pytest.fixture
def torchrun(launcher: Callable[[Path], Callable[..., Launch]], tmp_path: Path) -> Callable[..., Launch]:
    """Start processes: `torchrun(2, "-m", "fedblade", "run", …)`."""
    return launcher(tmp_path)
