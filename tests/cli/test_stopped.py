"""What a command that is stopped by a signal says: how to go on, in one line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from datetime import date

import pytest

from fedblade.core.stop_signals import STOP_SIGNALS
from fedblade.results import RunDirectory
from support.processes import processes_in

with warnings.catch_warnings():
    # The pinned typer uses a name that the pinned click announces to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fedblade.cli._stop import Stopped, resumable, stop_on_signals

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


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_run_whose_terminal_is_closed_can_go_on(small, tmp_path):
    """A closed terminal sends SIGHUP, and nothing can be printed on it any more."""
    import pty

    child, terminal = pty.fork()
    if child == 0:
        argv = ["run", *small, "--set", "rounds=5000", "--out", "mine"]
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "fedblade", *argv], os.environ | {"OMP_NUM_THREADS": "1"})
    history, deadline = tmp_path / "mine" / "history.jsonl", time.monotonic() + 60
    while not history.exists() or len(history.read_bytes().splitlines()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert (tmp_path / "mine" / "checkpoints" / f"round-{summary['rounds']:06d}.safetensors").is_file()


@pytest.fixture
def handlers_restored():
    """The handlers of the signals are those from before when the test has ended."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_restored")
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
@pytest.mark.parametrize(
    ("received", "stops"),
    [
        (["SIGHUP", "SIGHUP", "SIGTERM"], ["SIGHUP"]),
        (["SIGTERM", "SIGHUP"], ["SIGTERM"]),
        (["SIGINT", "SIGTERM"], ["SIGINT", "SIGTERM"]),
    ],
)
def test_a_hangup_beside_another_signal_stops_once(received, stops):
    stopped = []
    stop_on_signals()
    for name in received:
        try:
            signal.raise_signal(signal.Signals[name])
        except Stopped as error:
            stopped.append(signal.Signals(error.number).name)
    assert stopped == stops


@pytest.mark.usefixtures("handlers_restored")
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_with_nohup_a_closed_terminal_stops_nothing():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    with pytest.raises(Stopped):
        signal.raise_signal(signal.SIGTERM)


def test_a_run_is_resumed(long, tmp_path):
    line = stop(tmp_path, "run", *long, "--set", "method=fedavg")
    assert line.endswith(f" --set method=fedavg --resume --out runs/{TODAY}-fedavg-1")


def test_a_run_that_started_again_goes_on_with_what_it_has_started():
    stopped = Stopped(signal.SIGINT)
    stopped.added_options = ["--resume"]
    advice = stopped.advice(["run", "--restart", "--out", "my run"])
    assert advice.endswith(": fedblade run --out 'my run' --resume")


@pytest.mark.thorough
def test_a_run_that_went_back_goes_on_in_its_new_folder(small, tmp_path):
    """The same command would go back once more."""
    saved = ["--set", "checkpoint.every=1", "--set", "checkpoint.keep=2"]
    command = [sys.executable, "-m", "fedblade", "run", *small, *saved, "--out", "mine"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    history = tmp_path / "mine-from-2" / "history.jsonl"
    again = [sys.executable, "-m", "fedblade", "run", *("--set", "rounds=5000"), "--resume", "--from-round", "2"]
    child = subprocess.Popen(
        [*again, "--out", "mine"], cwd=tmp_path, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not history.is_file() or len(history.read_text().splitlines()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert err.strip() == "stopped; to go on: fedblade run --resume --out mine-from-2"


def test_a_restart_is_advised_again_only_until_the_former_run_is_put_aside(tmp_path):
    """The new run is built before, which may take long."""
    command = ["run", "--restart", "--out", str(tmp_path)]
    (tmp_path / "config.toml").write_text("")

    def advice(work=lambda: None):
        stopped = Stopped(signal.SIGTERM)
        with contextlib.suppress(Stopped), resumable(tmp_path, given=True, options=["--resume"], restart=True):
            work()
            raise stopped
        return stopped.advice(command)

    assert advice().endswith(f"fedblade run --restart --out {tmp_path}")
    assert advice(RunDirectory(tmp_path).set_aside).endswith(f"fedblade run --out {tmp_path} --resume")
