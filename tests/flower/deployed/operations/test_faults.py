"""What goes wrong in a federation, with real processes: strangers, kills, failures, interruptions."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import RunFailed
from fedblade.flower import _arguments, _processes, certificates
from fedblade.flower._processes import free_ports
from fedblade.flower._record import read_record
from fedblade.flower._superlink import SuperLink, write_connection
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.node_folder import NodeFolder
from support.processes import HUNG_SECONDS, wait_for

pytestmark = pytest.mark.slow


def stranger(app: AppFolder, authority: Path, key: Path) -> tuple[int, str]:
    """A node that is none of ours: what it ends with, and what it says."""
    record = read_record(app)
    assert record is not None
    arguments = [
        *_arguments.module("_supernode_process"), "--superlink", record.address,
        "--root-certificates", str(authority), "--auth-supernode-private-key", str(key),
        "--port", str(free_ports(1)[0]), "--max-retries", "1",
    ]  # fmt: skip
    status = _processes.start(app, arguments, "stranger.log", app.local / "stranger").wait(HUNG_SECONDS)
    said = (app.logs / "stranger.log").read_text()
    (app.logs / "stranger.log").unlink()
    return status, said


def test_strangers_are_refused(federation, tmp_path):
    """A node or a command that trusts another authority, a key that nobody registered, and a key that is in use."""
    federation.up(2)
    app, other = federation.app, tmp_path / "other"
    certificates.make_certificates(other)
    certificates.write_node_key(other / "node-1")
    ours = app.certificates / "ca.crt"
    status, said = stranger(app, other / "ca.crt", other / "node-1")
    assert status != 0
    assert "CERTIFICATE_VERIFY_FAILED" in said
    _, said = stranger(app, ours, other / "node-1")
    # Flower's SuperNode ends itself at the front's status 401, with exit status 0.
    assert "The coordinator refuses this node" in said
    assert "SuperNode terminated" in said
    status, said = stranger(app, ours, NodeFolder(app.node(1)).key)
    assert status != 0, said
    assert "Failed to activate SuperNode" in said
    record = read_record(app)
    elsewhere = AppFolder(tmp_path / "elsewhere")
    write_connection(elsewhere, f"127.0.0.1:{record.superlink.port}", other / "ca.crt")
    with SuperLink(elsewhere) as superlink, pytest.raises(RunFailed, match="failed"):
        superlink.nodes()
    returned, status = federation.status()
    assert (returned, len(status["nodes"])) == (0, 2)
    with SuperLink(app) as superlink:
        assert sorted(superlink.nodes().values()) == ["online", "online"]


def test_a_killed_node_comes_back(federation):
    """Flower refuses a node until its old heartbeat has lapsed; the supervisor tries until then."""
    federation.up(2)
    os.kill(read_record(federation.app).nodes[0].pid, signal.SIGKILL)
    wait_for(lambda: read_record(federation.app).nodes[0].restarts > 0)
    wait_for(lambda: federation.status()[0] == 0)
    federation.call("run", "--out", str(federation.runs / "after"), "--quiet")
    federation.call("down")
    assert federation.processes == []


def test_a_killed_superlink_comes_back_with_its_nodes(federation):
    federation.up(2)
    before = read_record(federation.app)
    os.kill(before.superlink.pid, signal.SIGKILL)
    wait_for(lambda: read_record(federation.app).superlink.restarts == 1)
    wait_for(lambda: federation.status()[0] == 0)
    assert read_record(federation.app).superlink.port == before.superlink.port
    federation.call("run", "--out", str(federation.runs / "after"), "--quiet")


def test_a_failed_run_is_a_failure(federation):
    federation.up(1)
    out = federation.runs / "breaks"
    error = federation.call("run", "--out", str(out), "--quiet", status=1)
    assert error == f"error: the run in '{out}' failed: the disk is full. To go on with it, add --resume --out {out}\n"
    assert [run["status"] for run in federation.status()[1]["runs"]] == ["finished:failed"]


def test_an_interrupted_run_is_stopped_and_goes_on(federation):
    federation.up(1)
    out = federation.runs / "endless"
    process = federation.start("run", "--out", str(out))
    wait_for((out / "began").is_file)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == 130
    assert error.rstrip().endswith("--resume")
    assert federation.status()[1]["runs"][0]["status"] == "finished:stopped"
    (out / "config.toml").unlink(missing_ok=True)
    (out / "began").unlink()
    federation.call("run", "--out", str(out), "--resume", "--quiet")
    assert (out / "began").read_text() == "True"


def test_flower_itself_can_start_the_app(federation):
    """`flwr run` with the federation's home takes the app's own settings, in the folder where the SuperLink runs."""
    federation.up(1)
    (federation.folder / "runs").mkdir()
    (federation.folder / "runs" / "nodes").write_text("1")
    environment = _processes.environment(federation.app.home) | federation.environment
    command = [_processes.command("flwr"), "run", str(federation.folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    wait_for((federation.folder / "runs" / "flower" / "summary.json").is_file)


def test_what_is_up_is_not_started_twice(federation):
    federation.up(1)
    before = federation.processes
    assert "is already up. End it first: fedblade flower down" in federation.call("up", status=2)
    assert set(before) <= set(federation.processes)


def test_down_needs_no_supervisor(federation):
    federation.up(2)
    (supervisor,) = filter(_processes.is_supervisor, federation.processes)
    os.kill(supervisor, signal.SIGKILL)
    assert federation.call("down") == "ended\n"
    assert federation.processes == []


def test_a_local_federation_without_keys(federation):
    federation.up(2, "--insecure")
    returned, status = federation.status()
    assert returned == 0
    assert [node["state"] for node in status["nodes"]] == ["online", "online"]
    federation.call("run", "--out", str(federation.runs / "plain"), "--quiet")
    assert not federation.app.certificates.exists()
    federation.call("down")
    assert federation.processes == []


def test_what_cannot_start_leaves_nothing_behind(federation, tmp_path):
    broken = tmp_path / "broken" / "sitecustomize.py"
    broken.parent.mkdir()
    broken.write_text(
        "import os, sys\nif any('_superlink_process' in argument for argument in sys.orig_argv):\n    os._exit(3)\n"
    )
    federation.environment["PYTHONPATH"] = str(broken.parent)
    error = federation.call("up", status=1)
    assert error.startswith("error: the SuperLink ended with status")
    assert error.count("\n") == 1
    assert federation.processes == []


def test_an_interrupted_start_leaves_nothing_behind(federation):
    process = federation.start("up", "--nodes", "2")
    wait_for(lambda: federation.app.record.is_file())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == 130
    assert federation.processes == []


def test_a_python_without_flower_is_told_so(federation, tmp_path):
    hidden = tmp_path / "hidden" / "sitecustomize.py"
    hidden.parent.mkdir()
    hidden.write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'flwr' else found(name, *rest)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "fedblade", "flower", "up", str(federation.folder)],
        env=os.environ | {"PYTHONPATH": str(hidden.parent)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'fedblade[flower]'" in done.stderr
