"""Runs side by side as processes: the same files as one after another, whatever is killed or stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedblade
from support.processes import processes_in
from support.run_files import count_rounds, files_of

pytestmark = pytest.mark.thorough

SETTINGS = {
    "model": "mlp", "hidden": [16], "dim": 8, "num_clients": 6, "clients_per_round": 3, "epochs": 1,
    "metrics": ["accuracy"],
}  # fmt: skip

OWN = """
import warnings
from dataclasses import replace

from fedblade.methods.fedavg import fedavg

def breaks():
    def server(state, sums):
        warnings.warn("a warning of the method")
        new = fedavg().server(state, sums)
        broken = {key: value * float("nan") for key, value in new.params.items()}
        return new.replace(params=broken if new.round == 2 else new.params)

    return replace(fedavg(), server=server)

def bug():
    def server(state, sums):
        raise TypeError("this method has a bug")

    return replace(fedavg(), server=server)
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)


def folders(path):
    return sorted(folder.parent for folder in path.glob("*/config.toml"))


def test_runs_side_by_side_give_the_files_of_one_run_after_another(cli, small, own, tmp_path):
    """One of them fails, which stops no other, and a warning that two workers give is shown once."""
    command = ("compare", *small, "--methods", "fedavg,scaffold,own.py:breaks", "--seeds", "1,2")
    alone = cli(*command, "--out", "alone", "--jobs", "1")
    shared = cli(*command, "--out", "shared", "--devices", "cpu,cpu")
    assert alone.status == shared.status == 1
    assert shared.last == "shared/report.html"
    *warning, last = shared.err.splitlines()
    assert last == alone.err.splitlines()[-1]
    assert "error: 2 of 6 runs failed: the server's parameters became non-finite" in last
    assert len([line for line in warning if "UserWarning: a warning of the method" in line]) == 1
    for label in ("fedavg seed 1", "scaffold seed 1"):
        # The number says when the run was started, and that depends on how fast the others were.
        assert re.search(rf"\[{label} \([1-6]/6\)\] round 3/3", shared.out)
    assert "6 of 6 runs ended" in shared.out
    assert folders(tmp_path / "alone") == [tmp_path / "alone" / run.name for run in folders(tmp_path / "shared")]
    for run in folders(tmp_path / "shared"):
        same_run(run, tmp_path / "alone" / run.name)


def same_run(run, other):
    """Two folders hold the same run, byte by byte where no clock is involved."""
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (run, other)]
    assert len({summary["status"] for summary in summaries}) == 1
    if summaries[0]["status"] == "finished":
        assert files_of(run) == files_of(other)
    for name in ("config.toml", "metrics.json", "partition.json"):
        assert (run / name).read_bytes() == (other / name).read_bytes()


def test_a_bug_ends_the_study_with_the_words_and_the_traceback_of_the_worker(cli, small, own):
    answer = cli(
        "compare",
        *small,
        "--methods",
        "own.py:bug",
        "--seeds",
        "1,2",
        "--jobs",
        "2",
        "--out",
        "c",
        "--quiet",
        "--debug",
    )
    assert answer.status == 1
    assert "error: unexpected TypeError: this method has a bug" in answer.err
    assert 'raise TypeError("this method has a bug")' in answer.err


def wait_until(done, seconds=120.0):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_kills_of_a_worker_and_of_the_command(small, tmp_path):
    """A killed worker fails its run only, workers do not outlive the command, and every run can go on."""
    options = [*small, "--set", "metrics=accuracy", "--set", "rounds=150"]
    arguments = ["compare", *options, "--methods", "fedavg", "--seeds", "1,2,3", "--out", "c", "--jobs", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    runs = [tmp_path / "c" / f"fedavg-seed{seed}" for seed in (1, 2, 3)]
    command = [sys.executable, "-m", "fedblade", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, text=True, env=environment, stdout=subprocess.PIPE) as process:
        wait_until(lambda: count_rounds(runs[0]) > 1)
        (worker,) = [number for number in processes_in(tmp_path) if holds_lock(number, runs[0])]
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: count_rounds(runs[2]) > 1)
        process.kill()
        out, _ = process.communicate()
    wait_until(lambda: not processes_in(tmp_path))
    assert "fedavg seed 1 failed: its process was ended by SIGKILL" in out
    assert [status(run) for run in runs[::2]] == [None, "interrupted"]
    undisturbed = tmp_path / "undisturbed"
    settings = {**SETTINGS, "rounds": 150, "method": "fedavg", "seed": 1}
    fedblade.run("quickstart", out=undisturbed, **settings)
    assert fedblade.run("quickstart", out=runs[0], resume=True, **settings).summary["status"] == "finished"
    assert files_of(runs[0]) == files_of(undisturbed)


def status(run):
    """The status in the summary of a run, None without a summary."""
    path = run / "summary.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def holds_lock(process, run):
    """Whether a process has the lock of a run's folder open."""
    return any(link.readlink() == run / ".lock" for link in Path(f"/proc/{process}/fd").iterdir())
