"""What a command that is stopped by a signal says: how to go on, in one line."""

import json
import os
import signal
import subprocess
import sys
from datetime import date

import pytest

from support.processes import processes_in

TODAY = date.today().isoformat()


def stop(folder, *argv):
    """Stop a command in a round of its first run; returns the line it leaves."""
    command = [sys.executable, "-m", "fedblade", *argv]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(command, cwd=folder, text=True, env=environment, **streams)
    for line in child.stdout:
        if "round 1/" in line:
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert len(err.splitlines()) == 1
    return err.strip()


@pytest.fixture
def long(small):
    return [*small, "--set", "rounds=5000"]


@pytest.mark.thorough
def test_compare_names_the_folder_it_used(long, tmp_path):
    argv = ["compare", *long, "--methods", "fedavg", "--seeds", "1"]
    line = stop(tmp_path, *argv)
    assert line == f"stopped; to go on: fedblade {' '.join(argv)} --out runs/{TODAY}-compare-1".replace(
        "hidden=[16]", "'hidden=[16]'"
    )
    assert (tmp_path / "runs" / f"{TODAY}-compare-1" / "fedavg-seed1" / "config.toml").is_file()


@pytest.mark.thorough
def test_a_sweep_names_the_command_with_its_folder_once(long, tmp_path):
    """Its runs are trained side by side, and no process is left of them."""
    arguments = ["--grid", "lr=0.01,0.1", "--seeds", "1", "--jobs", "2", "--out", "my folder"]
    line = stop(tmp_path, "sweep", *long, *arguments)
    assert processes_in(tmp_path) == []
    (summary, *_) = (tmp_path / "my folder").glob("*/summary.json")
    assert json.loads(summary.read_text())["status"] == "interrupted"
    assert line.startswith("stopped; to go on: fedblade sweep ")
    assert line.endswith("--out 'my folder'")
    assert line.count("--out") == 1


def test_a_run_is_resumed(long, tmp_path):
    line = stop(tmp_path, "run", *long, "--set", "method=fedavg")
    assert line.endswith(f" --set method=fedavg --resume --out runs/{TODAY}-fedavg-1")
