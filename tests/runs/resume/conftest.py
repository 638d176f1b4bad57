"""Runs in processes of their own, to be killed, and the undisturbed runs they must equal."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import fedblade
from support.stored_states import saved_results

OWN_METHODS = Path(__file__).parents[2] / "support" / "own_methods.py"
SCAFFOLD = f"{OWN_METHODS}:scaffold"
BREAKS = f"{OWN_METHODS}:breaks"


@dataclass(frozen=True)
class Job:
    """A small run on the digits, described once for Python and for the command line."""

    data: Path
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, Any]:
        """The overrides of the quickstart; None leaves a key out."""
        keys = {
            "dataset": "arrays", "dataset.path": str(self.data), "model": "mlp", "hidden": [24], "dim": 16,
            "norm": "batch", "method": "fedavg", "num_clients": 8, "clients_per_round": 4, "rounds": 40, "epochs": 1,
            "metrics": "accuracy,spectrum,drift",
        } | self.changes  # fmt: skip
        return {key: value for key, value in keys.items() if value is not None}

    def run(self, out: Path, **options: Any) -> fedblade.Result:
        """Run here."""
        return fedblade.run("quickstart", out=out, **self.keys, **options)

    def start(self, out: Path, *options: str, **popen: Any) -> subprocess.Popen[str]:
        """Run in a process of its own, as a user would."""
        settings = [part for key, value in self.keys.items() for part in ("--set", f"{key}={value}")]
        return subprocess.Popen(
            [sys.executable, "-m", "fedblade", "run", "quickstart", *settings, "--resume", "--out", str(out), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, **popen,
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What two runs must share to be called identical."""

    history: list[dict[str, Any]]
    files: dict[str, str]

    @staticmethod
    def of(folder: Path) -> "Outcome":
        """Read a finished run."""
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["status"] == "finished"
        assert summary["rounds"] == len(rows(folder))
        history = [{key: value for key, value in row.items() if "seconds" not in key} for row in rows(folder)]
        files = {path.name: digest(path) for path in result_files(folder)}
        return Outcome(history, files | saved_results(folder))


def result_files(folder: Path) -> list[Path]:
    """The model, the best one and the lists of diagnostics."""
    best = (folder / "checkpoints").glob("best.safetensors")
    return [folder / "model.safetensors", *best, *folder.glob("diagnostics.jsonl")]


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rows(folder: Path) -> list[dict[str, Any]]:
    """The lines of a history."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.fixture
def job(digits_file: Path) -> Callable[..., Job]:
    """Describe a run; keywords are keys of its configuration."""
    return lambda **changes: Job(digits_file, changes)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Job], Outcome]:
    """The outcome of a run that nobody disturbs, worked out once per configuration."""
    known: dict[str, Outcome] = {}

    def outcome(job: Job) -> Outcome:
        key = json.dumps(job.keys)
        if key not in known:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            job.run(folder)
            known[key] = Outcome.of(folder)
            shutil.rmtree(folder)
        return known[key]

    return outcome


@pytest.fixture
def outcome_of() -> Callable[[Path], Outcome]:
    """Read the outcome of a finished run."""
    return Outcome.of


@pytest.fixture
def methods_of_mine() -> dict[str, str]:
    """References to the methods in `own_methods.py`."""
    return {"scaffold": SCAFFOLD, "breaks": BREAKS}


def count_rounds(folder: Path) -> int:
    """Lines written so far."""
    path = folder / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture
def stop() -> Callable[..., int]:
    """Send a signal `delay` seconds after the child has done `rounds` more rounds; returns its exit status."""

    def send(child: subprocess.Popen[str], folder: Path, rounds: int, delay: float, number: int) -> int:
        target, deadline = count_rounds(folder) + rounds, time.monotonic() + 60
        while rounds and count_rounds(folder) < target and child.poll() is None:
            assert time.monotonic() < deadline, "the child makes no progress"
            time.sleep(0.005)
        time.sleep(delay)
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode not in (1, 2), err
        return child.returncode

    return send


@pytest.fixture
def kill(stop: Callable[..., int]) -> Callable[..., int]:
    """Send SIGKILL."""
    return lambda child, folder, rounds=0, delay=0.0: stop(child, folder, rounds, delay, signal.SIGKILL)
