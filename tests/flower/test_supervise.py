"""A process that ends is started again, later each time it ends early."""

import signal
import socket
import sys
import time

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _processes, _supervise
from fedblade.flower._place import Place
from fedblade.flower._ports import LOOPBACK
from fedblade.flower._record import Kept, Plan, read_record, write_plan


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    _processes.end_all(place, 1.0)


def ward(place: Place, code: str) -> _supervise._Ward:
    return _supervise._Ward("node-1", [sys.executable, "-c", code], place.home, Kept(1))


def test_pauses_grow_and_restarts_are_counted(place, capsys):
    one = ward(place, "raise SystemExit(3)")
    one.start(place)
    for restart in range(1, 7):
        one.process.wait(10)
        assert one.look(place)
        assert (one.kept.pid, one.kept.status) == (None, 3)
        one.due = time.monotonic() + 60
        assert not one.look(place)
        one.due = 0.0
        assert one.look(place)
        assert one.kept.restarts == restart
        assert one.kept.pid == one.process.pid
    one.process.wait(10)
    said = [
        line.partition(" node-1 ended with status 3; starts again in ")[2]
        for line in capsys.readouterr().out.splitlines()
    ]
    assert said == ["1.0 s", "2.0 s", "4.0 s", "5.0 s", "5.0 s", "5.0 s"]


def test_a_process_that_ran_for_long_starts_afresh(place, monkeypatch, capsys):
    monkeypatch.setattr(_supervise, "_LASTING_SECONDS", 0.0)
    one = ward(place, "pass")
    one.failures = 9
    one.start(place)
    one.process.wait(10)
    assert one.look(place)
    assert "starts again in 0.5 s" in capsys.readouterr().out


def test_a_running_process_is_left_alone(place):
    one = ward(place, "import time; time.sleep(60)")
    one.start(place)
    assert not one.look(place)
    assert one.kept.restarts == 0
    _processes.end(place, [one.process.pid], 5.0)
    one.process.wait(5)


def test_a_port_that_was_taken_meanwhile_is_named(place):
    before = signal.getsignal(signal.SIGTERM)
    place.own.mkdir()
    try:
        with socket.create_server((LOOPBACK, 0)) as other:
            port = other.getsockname()[1]
            write_plan(place, Plan(False, port, ()))
            with pytest.raises(_processes.ProcessFailed, match=f"port {port} was taken by another program"):
                _supervise.supervise(place)
    finally:
        signal.signal(signal.SIGTERM, before)
    record = read_record(place)
    assert record is not None
    assert (record.phase, record.superlink.pid) == ("failed", None)
    assert str(port) in record.error
