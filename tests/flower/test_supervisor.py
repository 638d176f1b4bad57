"""A process that ends is started again, later each time it ends early."""

import signal
import socket
import sys
import time

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _processes, _supervisor
from fedblade.flower._processes import LOOPBACK
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower.app_folder import AppFolder


@pytest.fixture
def app(tmp_path):
    app = AppFolder(tmp_path)
    yield app
    _processes.end_all(app, 1.0)


def supervised(app: AppFolder, code: str) -> _supervisor._SupervisedProcess:
    return _supervisor._SupervisedProcess("node-1", [sys.executable, "-c", code], app.home, ProcessRecord(1))


def test_pauses_grow_and_restarts_are_counted(app, capsys):
    one = supervised(app, "raise SystemExit(3)")
    one.start(app)
    for restart in range(1, 7):
        one.process.wait(10)
        assert one.check(app)
        assert (one.record.pid, one.record.status) == (None, 3)
        one.restart_at = time.monotonic() + 60
        assert not one.check(app)
        one.restart_at = 0.0
        assert one.check(app)
        assert one.record.restarts == restart
        assert one.record.pid == one.process.pid
    one.process.wait(10)
    said = [
        line.partition(" node-1 ended with status 3; starts again in ")[2]
        for line in capsys.readouterr().out.splitlines()
    ]
    assert said == ["1.0 s", "2.0 s", "4.0 s", "5.0 s", "5.0 s", "5.0 s"]


def test_a_process_that_ran_for_long_starts_afresh(app, monkeypatch, capsys):
    monkeypatch.setattr(_supervisor, "_STABLE_SECONDS", 0.0)
    one = supervised(app, "pass")
    one.failures = 9
    one.start(app)
    one.process.wait(10)
    assert one.check(app)
    assert "starts again in 0.5 s" in capsys.readouterr().out


def test_a_running_process_is_left_alone(app):
    one = supervised(app, "import time; time.sleep(60)")
    one.start(app)
    assert not one.check(app)
    assert one.record.restarts == 0
    _processes.end(app, [one.process.pid], 5.0)
    one.process.wait(5)


def test_a_port_that_was_taken_meanwhile_is_named(app):
    before = signal.getsignal(signal.SIGTERM)
    app.local.mkdir()
    try:
        with socket.create_server((LOOPBACK, 0)) as other:
            port = other.getsockname()[1]
            write_record(app, FederationRecord(False, ProcessRecord(port)))
            with pytest.raises(_processes.ProcessFailed, match=f"port {port} is taken by another program"):
                _supervisor.supervise_federation(app)
    finally:
        signal.signal(signal.SIGTERM, before)
    record = read_record(app)
    assert record is not None
    assert (record.phase, record.superlink.pid) == ("failed", None)
    assert str(port) in record.error
