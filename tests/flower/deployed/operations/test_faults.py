"""What goes wrong in a rehearsal, with real processes: strangers, kills, failures, interruptions."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import RunFailed
from fedblade.flower import _certs, _processes
from fedblade.flower._control import SuperLink, write_connection
from fedblade.flower._place import Place
from fedblade.flower._ports import free_ports
from fedblade.flower._record import read_record

pytestmark = pytest.mark.slow


def wait_for(what: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.2)


def stranger(place: Place, authority: Path, key: Path) -> tuple[int, str]:
    """A node that is none of ours: what it ends with, and what it says."""
    record = read_record(place)
    assert record is not None
    arguments = [
        _processes.command("flower-supernode"), "--superlink", f"127.0.0.1:{record.superlink.port}",
        "--root-certificates", str(authority), "--auth-supernode-private-key", str(key),
        "--port", str(free_ports(1)[0]), "--max-retries", "1",
    ]  # fmt: skip
    status = _processes.start(place, arguments, "stranger.log", place.own / "stranger").wait(60)
    said = (place.logs / "stranger.log").read_text()
    (place.logs / "stranger.log").unlink()
    return status, said


def test_strangers_are_refused(rehearsal, tmp_path):
    """A node or a command that trusts another authority, a key that nobody registered, and a key that is in use."""
    rehearsal.up(2)
    place, other = rehearsal.place, tmp_path / "other"
    _certs.make_certs(other, nodes=1)
    ours = place.certs / "ca.crt"
    status, said = stranger(place, other / "ca.crt", other / "node-1")
    assert status != 0
    assert "CERTIFICATE_VERIFY_FAILED" in said
    for key in (other / "node-1", place.certs / "node-1"):
        status, said = stranger(place, ours, key)
        assert status != 0
        assert "Failed to activate SuperNode" in said
    record = read_record(place)
    elsewhere = Place(tmp_path / "elsewhere")
    write_connection(elsewhere, f"127.0.0.1:{record.superlink.port}", other / "ca.crt")
    with SuperLink(elsewhere) as superlink, pytest.raises(RunFailed, match="failed"):
        superlink.nodes()
    returned, status = rehearsal.status()
    assert (returned, len(status["nodes"])) == (0, 2)
    with SuperLink(place) as superlink:
        assert sorted(superlink.nodes().values()) == ["online", "online"]


def test_a_killed_node_comes_back(rehearsal):
    """Flower refuses a node until its old heartbeat has lapsed; the supervisor tries until then."""
    rehearsal.up(2)
    os.kill(read_record(rehearsal.place).nodes[0].pid, signal.SIGKILL)
    wait_for(lambda: read_record(rehearsal.place).nodes[0].restarts > 0, 20)
    wait_for(lambda: rehearsal.status()[0] == 0, 120)
    rehearsal.call("run", "--out", str(rehearsal.runs / "after"), "--quiet")
    rehearsal.call("down")
    assert rehearsal.processes == []


def test_a_killed_superlink_comes_back_with_its_nodes(rehearsal):
    rehearsal.up(2)
    before = read_record(rehearsal.place)
    os.kill(before.superlink.pid, signal.SIGKILL)
    wait_for(lambda: read_record(rehearsal.place).superlink.restarts == 1, 20)
    wait_for(lambda: rehearsal.status()[0] == 0, 60)
    assert read_record(rehearsal.place).superlink.port == before.superlink.port
    rehearsal.call("run", "--out", str(rehearsal.runs / "after"), "--quiet")


def test_a_failed_run_is_a_failure(rehearsal):
    rehearsal.up(1)
    out = rehearsal.runs / "breaks"
    error = rehearsal.call("run", "--out", str(out), "--quiet", status=1)
    assert error == f"error: the run in '{out}' failed: the disk is full. To go on with it, add --resume --out {out}\n"
    assert [run["status"] for run in rehearsal.status()[1]["runs"]] == ["finished:failed"]


def test_an_interrupted_run_is_stopped_and_goes_on(rehearsal):
    rehearsal.up(1)
    out = rehearsal.runs / "endless"
    process = rehearsal.start("run", "--out", str(out))
    wait_for((out / "began").is_file, 60)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.rstrip().endswith("--resume")
    assert rehearsal.status()[1]["runs"][0]["status"] == "finished:stopped"
    (out / "config.toml").unlink(missing_ok=True)
    (out / "began").unlink()
    rehearsal.call("run", "--out", str(out), "--resume", "--quiet")
    assert (out / "began").read_text() == "True"


def test_flower_itself_can_start_the_app(rehearsal):
    """`flwr run` with the rehearsal's home takes the app's own settings, in the folder where the SuperLink runs."""
    rehearsal.up(1)
    (rehearsal.folder / "runs").mkdir()
    (rehearsal.folder / "runs" / "nodes").write_text("1")
    environment = _processes.environment(rehearsal.place.home)
    command = [_processes.command("flwr"), "run", str(rehearsal.folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    wait_for((rehearsal.folder / "runs" / "flower" / "summary.json").is_file, 60)


def test_what_is_up_is_not_started_twice(rehearsal):
    rehearsal.up(1)
    before = rehearsal.processes
    assert "is already up. End it first: fedblade flower down" in rehearsal.call("up", status=2)
    assert set(before) <= set(rehearsal.processes)


def test_down_needs_no_supervisor(rehearsal):
    rehearsal.up(2)
    (supervisor,) = (
        process for process in rehearsal.processes if "_supervise" in Path(f"/proc/{process}/cmdline").read_text()
    )
    os.kill(supervisor, signal.SIGKILL)
    assert rehearsal.call("down") == "ended\n"
    assert rehearsal.processes == []


def test_a_rehearsal_without_keys(rehearsal):
    rehearsal.up(2, "--insecure")
    returned, status = rehearsal.status()
    assert returned == 0
    assert [node["state"] for node in status["nodes"]] == ["online", "online"]
    rehearsal.call("run", "--out", str(rehearsal.runs / "plain"), "--quiet")
    assert not rehearsal.place.certs.exists()
    rehearsal.call("down")
    assert rehearsal.processes == []


def test_what_cannot_start_leaves_nothing_behind(rehearsal):
    _certs.make_certs(rehearsal.place.certs)
    (rehearsal.place.certs / "server.key").write_text("no key")
    error = rehearsal.call("up", status=1)
    assert error.startswith("error: the SuperLink ended with status")
    assert error.count("\n") == 1
    assert rehearsal.processes == []


def test_an_interrupted_start_leaves_nothing_behind(rehearsal):
    process = rehearsal.start("up", "--nodes", "2")
    wait_for(lambda: rehearsal.place.state.is_file(), 30)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert rehearsal.processes == []


def test_a_python_without_flower_is_told_so(rehearsal, tmp_path):
    hidden = tmp_path / "hidden" / "sitecustomize.py"
    hidden.parent.mkdir()
    hidden.write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'flwr' else found(name, *rest)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "fedblade", "flower", "up", str(rehearsal.folder)],
        env=os.environ | {"PYTHONPATH": str(hidden.parent)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'fedblade[flower]'" in done.stderr
