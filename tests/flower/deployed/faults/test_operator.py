"""What an operator does while a run goes on, and what stays behind on the coordinator's disk."""

import json
import signal
import sqlite3

import pytest

pytest.importorskip("flwr")
from fedblade.flower._flwr_internals import database
from fedblade.flower._superlink import SuperLink
from fedblade.flower.node_folder import NodeFolder
from support.patched_processes import patching
from support.processes import wait_for

pytestmark = pytest.mark.slow
_NEWER = """\
from pathlib import Path


def be_newer(module):
    module.__version__ = "9.8.7"
    Path({mark!r}).touch()


PATCHES = {{"fedblade._version": be_newer}}
"""
"""Another release of the library, with the same protocol."""


def test_a_client_that_is_revoked_in_a_round_counts_neither_in_it_nor_later(federation):
    """Its reply of the round has arrived: client 0 is waited for, so that the replies of the others wait on disk."""
    federation.make()
    federation.call("up")
    federation.hold(0, 2)
    run = federation.run()
    federation.reached(0, 2)
    wait_for((federation.out / "checkpoints" / "waiting" / "1.safetensors").is_file)
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


def test_a_client_that_leaves_for_good_is_missed_from_then_on(federation):
    """Its node is stopped in the middle of its training, and its key is revoked; no round waits for its deadline."""
    federation.make(**{"flower.round_seconds": 300})
    federation.call("up")
    federation.hold(0, 2)
    federation.hold(2, 2)
    run = federation.run()
    federation.reached(0, 2)
    federation.reached(2, 2)
    federation.kill_supervisor()
    federation.kill_node(3, signal.SIGTERM)
    federation.call("revoke", "--client", "2")
    federation.let_go()
    federation.ended(run)
    assert [row["contributors"] for row in federation.rows()] == [[0, 1, 2], [0, 1], [0, 1]]
    assert all(row["seconds"] < 200 for row in federation.rows())
    events = [json.loads(line) for line in federation.events()]
    missing = [(event["event"], event["round"]) for event in events if event.get("client") == 2]
    assert ("lost", 2) in missing
    assert ("no node", 3) in missing
    summary = federation.summary()
    assert summary["status"] == "finished"
    assert any("client 2" in flag for flag in summary["flags"])


def test_a_node_that_is_upgraded_in_the_middle_of_a_run_takes_part_again(federation, tmp_path, monkeypatch):
    federation.make(rounds=2, **{"flower.round_seconds": 60, "flower.quorum": 1.0, "flower.attempts": 6})
    federation.call("up")
    federation.hold(0, 1)
    federation.hold(2, 1)
    run = federation.run()
    federation.reached(0, 1)
    federation.reached(2, 1)
    federation.kill_supervisor()
    federation.kill_node(3, signal.SIGTERM)
    for name, value in patching(tmp_path / "newer", _NEWER.format(mark=str(tmp_path / "is newer"))).items():
        monkeypatch.setenv(name, value)
    with federation.running_node(NodeFolder(federation.app.node(3))):
        federation.let_go()
        federation.ended(run)
    assert (tmp_path / "is newer").is_file()
    assert [row["contributors"] for row in federation.rows()] == [[0, 1, 2], [0, 1, 2]]
    assert federation.digest() == federation.undisturbed()


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
    wait_for((federation.out / "summary.json").is_file)
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
    wait_for(lambda: len(federation.rows()) >= 2)
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
