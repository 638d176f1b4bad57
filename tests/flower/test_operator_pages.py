"""What an operator sees of a federation: health, figures, logs that stay small, a database without old messages."""

import datetime
import http.client
import json
import sqlite3
import subprocess
import sys
import time

import pytest
import tomli_w

pytest.importorskip("flwr")
from fedblade.flower import _processes, _x509, certificates
from fedblade.flower._operator_pages import operator_pages
from fedblade.flower._processes import ProcessFailed, rotate_logs
from fedblade.flower._record import FederationRecord, ProcessRecord
from fedblade.flower.app_folder import AppFolder


@pytest.fixture
def app(tmp_path):
    app = AppFolder(tmp_path)
    app.logs.mkdir(parents=True)
    certificates.make_certificates(app.certificates)
    yield app
    _processes.end_all(app, 1.0)


@pytest.fixture
def record(app):
    """A federation whose only process runs."""
    process = _processes.start(app, [sys.executable, "-c", "import time; time.sleep(60)"], "superlink.log", app.home)
    yield FederationRecord(True, ProcessRecord(1, pid=process.pid, restarts=3), phase="started")
    _processes.end(app, [process.pid], 5.0)
    process.wait()


def ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def values(text: str) -> dict[str, float]:
    """The numbers of a page in the format of Prometheus."""
    return {name: float(number) for name, _, number in (
        line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))}  # fmt: skip


def make_database(app: AppFolder) -> None:
    """A database with the columns that are read: two nodes online, one late, one whose key was withdrawn."""
    with sqlite3.connect(app.database) as connection:
        connection.execute("CREATE TABLE node (node_id, public_key, status, online_until)")
        now = time.time()
        rows = [
            (-1, b"a", "online", now + 60),
            (2, b"b", "online", now + 60),
            (3, b"c", "online", now - 1),
            (4, b"d", "unregistered", now + 60),
        ]
        connection.executemany("INSERT INTO node VALUES (?, ?, ?, ?)", rows)
    connection.close()


def test_the_figures_of_a_run(app, record, tmp_path):
    make_database(app)
    rows = [
        {"fingerprint": "f", "node_id": str(node), "clients": clients, "admitted_at": "t", "revoked_at": None}
        for node, clients in ((2**64 - 1, [0, 1]), (2, [2]), (3, [3]))
    ]
    app.admissions.write_text(json.dumps({"format": 1, "admissions": rows}))
    run = tmp_path / "run"
    run.mkdir()
    app.last_run.write_text(tomli_w.dumps({"run-dir": str(run), "resume": False}))
    history = [
        {"round": 1, "seconds": 2.5, "count_refused_replies": 2},
        {"round": 2, "seconds": 7.25, "count_missing_clients": 1, "count_refused_replies": 1},
    ]
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    with operator_pages(app, record):
        status, text = ask(record.pages_port, "/metrics")
        assert ask(record.pages_port, "/health") == (200, '{"status": "ok", "problems": []}\n')
        assert ask(record.pages_port, "/state.json")[0] == 404
    assert status == 200
    told = values(text)
    assert 3649 < told.pop('fedblade_certificate_days_left{file="ca.crt"}') < 3650.1
    assert 364 < told.pop('fedblade_certificate_days_left{file="server.crt"}') < 365.1
    assert told.pop("fedblade_seconds_since_last_round") < 60
    memory = told.pop('fedblade_process_memory_bytes{process="superlink"}')
    assert told.pop("fedblade_memory_bytes") >= memory > 1_000_000
    assert told == {
        'fedblade_process_up{process="superlink"}': 1,
        'fedblade_process_restarts_total{process="superlink"}': 3,
        "fedblade_clients_online": 3,
        "fedblade_clients_missing": 1,
        "fedblade_rounds_done": 2,
        "fedblade_refused_replies_total": 3,
        "fedblade_last_round_seconds": 7.25,
        "fedblade_last_round_missing_clients": 1,
        "fedblade_database_bytes": app.database.stat().st_size,
        "fedblade_log_bytes": 0,
    }
    described = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert sorted(described) == sorted({name.partition("{")[0] for name in values(text)})


def test_what_cannot_be_told_is_left_out(app):
    record = FederationRecord(False, ProcessRecord(1))
    app.admissions.write_text("{")
    app.last_run.write_text("run-dir = 3")
    with operator_pages(app, record):
        told = values(ask(record.pages_port, "/metrics")[1])
        status, said = ask(record.pages_port, "/health")
    assert set(told) == {
        'fedblade_process_up{process="superlink"}', 'fedblade_process_restarts_total{process="superlink"}',
        'fedblade_process_memory_bytes{process="superlink"}', "fedblade_memory_bytes",
        "fedblade_database_bytes", "fedblade_log_bytes",
    }  # fmt: skip
    assert status == 503
    assert json.loads(said)["problems"] == ["the federation is still starting", "superlink does not run"]


def test_an_ended_certificate_is_a_problem(app, record, monkeypatch):
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=366)
    monkeypatch.setattr(_x509, "_now", lambda: later)
    with operator_pages(app, record):
        assert json.loads(ask(record.pages_port, "/health")[1])["problems"] == ["the server's certificate has ended"]
        (app.certificates / "server.crt").unlink()
        assert "server.crt' is missing" in json.loads(ask(record.pages_port, "/health")[1])["problems"][0]


def test_a_port_that_is_taken_is_named(app, record):
    with operator_pages(app, record):
        other = FederationRecord(True, ProcessRecord(1), pages_port=record.pages_port)
        with (
            pytest.raises(ProcessFailed, match=f"cannot be served on port {record.pages_port}"),
            operator_pages(app, other),
        ):
            pass


def test_a_log_is_put_aside_while_a_process_writes_to_it(app):
    log = app.logs / "node-1.log"
    code = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=file, text=True)

    def write(text):
        size = log.stat().st_size
        process.stdin.write(text + "\n")
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while log.stat().st_size == size:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    write("a" * 50)
    rotate_logs(app.logs, largest=60)
    assert not (app.logs / "node-1.log.1").exists()
    write("b" * 50)
    rotate_logs(app.logs, largest=60)
    write("c" * 70)
    assert log.read_text() == "c" * 70 + "\n"
    rotate_logs(app.logs, largest=60)
    process.communicate()
    assert sorted(path.name for path in app.logs.iterdir()) == ["node-1.log", "node-1.log.1"]
    assert (app.logs / "node-1.log.1").read_text() == "c" * 70 + "\n"
    assert log.stat().st_size == 0
