"""What an operator does while a run goes on, and what stays behind on the coordinator's disk."""

import json
import sqlite3

import pytest

pytest.importorskip("flwr")
from fedblade.flower._flwr_internals import database
from fedblade.flower._superlink import SuperLink

from .conftest import wait_for

pytestmark = pytest.mark.slow


def test_a_client_that_is_revoked_in_a_round_counts_neither_in_it_nor_later(federation):
    """Its reply of the round has arrived: client 0 is waited for, so that the replies of the others wait on disk."""
    federation.make()
    federation.call("up")
    federation.hold(0, 2)
    run = federation.run()
    federation.reached(0, 2)
    wait_for((federation.out / "checkpoints" / "waiting" / "1.safetensors").is_file, 60)
    federation.call("revoke", "--client", "1")
    federation.let_go()
    federation.ended(run)
    assert [row["contributors"] for row in federation.rows()] == [[0, 1, 2], [0, 2], [0, 2]]
    events = [json.loads(line) for line in federation.events()]
    (refused,) = [event for event in events if event["event"] == "refused reply"]
    assert (refused["round"], refused["client"]) == (2, 1)
    assert refused["reason"] == "its node is no longer admitted"
    summary = federation.summary()
    assert summary["status"] == "finished"
    assert any("client 1" in flag for flag in summary["flags"])


def test_a_run_that_flwr_stops_has_a_summary_and_is_resumed_to_the_same_model(federation):
    federation.make(rounds=2)
    federation.call("up")
    federation.hold(1, 2)
    run = federation.run()
    federation.reached(1, 2)
    with SuperLink(federation.app) as superlink:
        superlink.stop(str(superlink.runs()[0]["run-id"]))
    error = federation.ended(run, status=1)
    assert "was stopped" in error
    assert "--resume" in error
    wait_for((federation.out / "summary.json").is_file, 30)
    assert federation.summary()["status"] == "interrupted"
    assert json.loads(federation.events()[-1])["event"] == "stopped"
    assert len(federation.rows()) == 1
    federation.let_go()
    federation.call("run", "--out", str(federation.out), "--resume", "--quiet")
    assert federation.digest() == federation.undisturbed()


def test_no_message_stays_in_the_database_and_logs_grow_slowly(federation):
    """The page for operators has figures of 200 rounds, by `benchmarks.processes.federation_growth`."""
    rounds = 12
    federation.make(rounds=rounds, num_clients=2, clients_per_round=2)
    federation.call("up")
    run = federation.run()
    wait_for(lambda: len(federation.rows()) >= 2, 120)
    early = log_bytes(federation)
    federation.ended(run)
    assert log_bytes(federation) - early < (rounds - 2) * 10_000
    files = federation.app.local.glob(f"{federation.app.database.name}*")
    assert sum(file.stat().st_size for file in files) < 8e6
    with sqlite3.connect(f"{federation.app.database.as_uri()}?mode=ro", uri=True) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in database._IN_TRANSIT]
    connection.close()
    assert counts == [0] * len(database._IN_TRANSIT)


def log_bytes(federation):
    """The bytes of all logs of a coordinator and its nodes."""
    return sum(log.stat().st_size for log in federation.app.logs.iterdir())
