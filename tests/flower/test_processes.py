"""Processes of a local federation are found by what is in their environment, and ended."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from fedblade.core.errors import MissingExtra
from fedblade.flower import _arguments, _processes
from fedblade.flower.app_folder import AppFolder

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def app(tmp_path):
    app = AppFolder(tmp_path)
    yield app
    _processes.end_all(app, 1.0)


def start(app: AppFolder, code: str) -> subprocess.Popen[bytes]:
    process = _processes.start(app, [sys.executable, "-c", code], "log", app.home)
    log = app.logs / "log"
    for _ in range(200):
        if log.read_text().strip() or "print" not in code:
            break
        time.sleep(0.05)
    return process


def test_detached_children_are_found_and_ended(app):
    parent = start(app, PARENT)
    child = int((app.logs / "log").read_text())
    assert {parent.pid, child} <= set(_processes.running(app))
    parent.kill()
    parent.wait()
    assert _processes.running(app) == [child]
    assert _processes.is_running(app, child)
    _processes.end_all(app, 5.0)
    assert _processes.running(app) == []
    assert not _processes.is_running(app, child)


def test_a_process_that_does_not_listen_is_killed(app):
    process = start(app, STUBBORN)
    began = time.monotonic()
    _processes.end(app, [process.pid], 0.3)
    assert process.wait(5) == -9
    assert time.monotonic() - began >= 0.3


def test_others_are_left_alone(app, tmp_path):
    process = start(app, "import time; time.sleep(60)")
    for other in (AppFolder(tmp_path / "other"), AppFolder(tmp_path.parent)):
        assert _processes.running(other) == []
        _processes.end(other, [process.pid], 0.1)
    assert process.poll() is None
    _processes.end(app, [process.pid], 5.0)
    assert process.wait(5) == -15


def test_an_ended_process_does_not_run_though_nobody_asked_for_its_status(app):
    process = start(app, "pass")
    deadline = time.monotonic() + 10
    while _processes.is_running(app, process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert _processes.running(app) == []
    process.wait()


def test_flower_is_told_to_report_and_install_nothing(app):
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    start(app, code).wait(10)
    found = json.loads((app.logs / "log").read_text())
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert found["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert found["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert found["FLWR_HOME"] == str(app.home)
    assert os.access(_processes.command("python"), os.X_OK)


def test_nothing_is_imported_from_the_folder_in_which_a_process_works(app):
    for name in ("flwr", "fractions"):
        (app.path / f"{name}.py").write_text("raise SystemExit('planted')\n")
    start(app, "import fractions, importlib.util; print(importlib.util.find_spec('flwr').origin)").wait(10)
    printed = (app.logs / "log").read_text()
    assert "site-packages" in printed
    assert str(app.path) not in printed
    assert _arguments.module("_superlink")[:3] == [sys.executable, "-P", "-m"]


def test_a_missing_flower_is_named(monkeypatch):
    monkeypatch.setattr(_processes.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"needs the package 'flwr'. Install it with: pip install 'fedblade\[flower"):
        _processes.require_flower()
    with pytest.raises(MissingExtra, match="the command flower-nothing"):
        _processes.command("flower-nothing")


def test_free_ports_differ_and_can_be_taken():
    ports = _processes.free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as taken:
            taken.bind((_processes.LOOPBACK, port))


def test_a_port_is_open_while_something_listens():
    with socket.create_server((_processes.LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert _processes.is_open(port)
    assert not _processes.is_open(port)
