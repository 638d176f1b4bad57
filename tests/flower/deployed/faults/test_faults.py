"""What goes wrong in hospitals, with real processes, TLS and node keys: the run goes on, or can be resumed."""

import json
import os
import shutil
import signal
from contextlib import contextmanager

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _arguments, _processes, admissions, certificates
from fedblade.flower._processes import free_ports
from fedblade.flower._superlink import SuperLink
from fedblade.flower.digests import app_digest
from fedblade.flower.node_folder import NodeFolder, NodeSettings, make_node
from support.patched_processes import patching
from support.processes import HUNG_SECONDS, wait_for

pytestmark = pytest.mark.slow
MISSING = "count_missing_clients"
_CLOCKS = """\
import os
import re
from datetime import timedelta


def be_off(module):
    node = re.search(r"/nodes/(\\d+)/", os.environ.get("FLWR_HOME", "") + "/")
    seconds = {"1": 50, "2": -240}.get(node[1], 0) if node else 0
    inner = module.now
    module.now = lambda: inner() + timedelta(seconds=seconds)


PATCHES = {"flwr.supercore.date": be_off}
"""
"""The clocks by which two nodes sign and date what they send."""


@contextmanager
def another_node(federation, clients, admitted):
    """A node with its own processes beside those of the federation; its key replaces that of the client `admitted`."""
    app, folder = federation.app, NodeFolder(federation.folder.parent / "another")
    settings = NodeSettings(federation.record.address, clients, app_digest(app))
    make_node(folder, settings, app.certificates / certificates.CA_CERTIFICATE)
    admissions.revoke(app, admitted)
    node_id = admissions.admit(app, folder.public_key, [admitted]).node_id
    with SuperLink(app) as superlink, federation.running_node(folder):
        wait_for(lambda: superlink.nodes()[node_id] == "online")
        yield node_id, folder.path


def stranger(federation, authority, key):
    """A node that nobody registered, or that trusts another authority: what it ends with."""
    arguments = [
        _processes.command("flower-supernode"), "--superlink", federation.record.address,
        "--root-certificates", str(authority), "--auth-supernode-private-key", str(key), "--host", "127.0.0.1",
        "--port", str(free_ports(1)[0]), "--max-retries", "1",
    ]  # fmt: skip
    app = federation.app
    return _processes.start(app, arguments, "another.log", app.local / "another").wait(HUNG_SECONDS)


def test_a_node_killed_in_a_round_is_missed_and_the_run_goes_on(federation):
    federation.make(**{"flower.round_seconds": 40})
    federation.call("up")
    federation.hold(1, 2)
    run = federation.run()
    federation.reached(1, 2)
    federation.kill_supervisor()
    federation.kill_node(2)
    federation.ended(run)
    rows = federation.rows()
    assert [row.get(MISSING, 0) for row in rows] == [0, 1, 1]
    # Node 2 speaks for client 1.
    assert [row["contributors"] for row in rows] == [[0, 1, 2], [0, 2], [0, 2]]
    assert any("client 1" in flag for flag in federation.summary()["flags"])
    # The deadline ends the round, or Flower, which misses a node's heartbeat for a minute at most.
    assert all(row["seconds"] < 60 for row in rows)


def test_a_node_killed_and_restarted_at_once_is_waited_for(federation):
    """Flower refuses it for up to a minute; its supervisor tries until then and the round is repeated."""
    federation.make(**{"rounds": 2, "flower.round_seconds": 60, "flower.quorum": 1.0, "flower.attempts": 6})
    federation.call("up")
    federation.hold(1, 1)
    run = federation.run()
    federation.reached(1, 1)
    federation.kill_node(2)
    federation.let_go()
    federation.ended(run)
    assert federation.record.nodes[1].restarts > 0
    assert [row.get(MISSING, 0) for row in federation.rows()] == [0, 0]
    assert federation.digest() == federation.undisturbed()


def test_a_node_that_returns_into_an_open_round_does_not_stall_it(federation):
    """It is asked again, or Flower answers in its app; the round does not last until its deadline."""
    federation.make(**{"rounds": 2, "flower.round_seconds": 600, "flower.attempts": 1})
    federation.call("up")
    federation.hold(1, 1)
    run = federation.run()
    federation.reached(1, 1)
    federation.kill_node(2)
    federation.let_go()
    federation.ended(run)
    first, second = federation.rows()
    assert first["seconds"] < 200
    assert second["seconds"] < 200
    assert first.get(MISSING, 0) in (0, 1)


def test_a_straggler_past_the_deadline_is_missed_once(federation):
    federation.make(**{"flower.round_seconds": 40})
    federation.call("up")
    federation.hold(2, 2)
    run = federation.run()
    federation.reached(2, 2)
    wait_for(lambda: len(federation.rows()) == 2)
    federation.let_go()
    federation.ended(run)
    assert [row.get(MISSING, 0) for row in federation.rows()] == [0, 1, 0]


def test_a_run_whose_superlink_was_killed_goes_on_to_the_same_model(federation):
    federation.make(rounds=2)
    federation.call("up")
    federation.hold(1, 2)
    run = federation.run()
    federation.reached(1, 2)
    os.kill(federation.record.superlink.pid, signal.SIGKILL)
    wait_for(lambda: federation.record.superlink.restarts == 1)
    federation.let_go()
    federation.ended(run)
    assert [row.get(MISSING, 0) for row in federation.rows()] == [0, 0]
    assert federation.digest() == federation.undisturbed()


def test_a_run_whose_superlink_is_gone_for_long_ends_and_is_resumed_to_the_same_model(federation):
    """Flower gives up a run that it has not heard of for a minute."""
    federation.make(rounds=2)
    federation.call("up")
    federation.hold(1, 2)
    run = federation.run()
    federation.reached(1, 2)
    federation.kill_supervisor()
    app, gone = federation.app, federation.record.superlink.pid
    os.kill(gone, signal.SIGKILL)
    error = federation.ended(run, status=1)
    assert "the SuperLink has not answered for 60 s" in error
    assert "--resume" in error
    again = _processes.start(app, _arguments.superlink(app, federation.record), "superlink.log", app.home)
    try:
        wait_for(lambda: (federation.out / "summary.json").is_file())
    finally:
        _processes.end(app, [again.pid], 10.0)
        again.wait()
    assert federation.summary()["status"] == "interrupted"
    assert len(federation.rows()) == 1
    federation.let_go()
    federation.call("down")
    federation.call("up")
    federation.call("run", "--out", str(federation.out), "--resume", "--quiet")
    assert federation.digest() == federation.undisturbed()


def test_a_node_that_lost_its_disk_is_counted(federation):
    federation.make(method="scaffold", rounds=2)
    federation.call("up")
    federation.hold(0, 2)
    run = federation.run()
    federation.reached(0, 2)
    shutil.rmtree(federation.app.node(1) / "state")
    federation.let_go()
    federation.ended(run)
    assert [row.get("count_lost_states", 0) for row in federation.rows()] == [0, 1]


def test_a_client_joins_between_rounds_of_a_run_that_began_without_it(federation):
    federation.make(**{"flower.min_clients": 2, "flower.round_seconds": 60})
    federation.call("up")
    federation.kill_supervisor()
    federation.kill_node(3)
    third = federation.record.nodes[2].node_id
    with SuperLink(federation.app) as superlink:
        wait_for(lambda: superlink.nodes()[third] == "offline")
    federation.hold(0, 2)
    run = federation.run()
    federation.reached(0, 2)
    with another_node(federation, clients="2", admitted=2) as (newcomer, _):
        federation.let_go()
        federation.ended(run)
    assert [row.get(MISSING, 0) for row in federation.rows()] == [1, 1, 0]
    events = [json.loads(line) for line in federation.events()]
    (joined,) = [event for event in events if event["event"] == "joined"]
    assert (joined["round"], joined["client"], joined["node"]) == (3, 2, newcomer)
    members = json.loads((federation.out / "deployment.json").read_text())["clients"]
    assert {client: member["first_round"] for client, member in members.items()} == {"0": 0, "1": 0, "2": 3}


def test_a_node_that_claims_a_client_of_another_key_is_refused_and_logs_the_reason(federation):
    federation.make(**{"flower.min_clients": 2, "flower.round_seconds": 60})
    federation.call("up")
    said = "it claims client 0, for which it is not admitted"
    with another_node(federation, clients="0", admitted=2) as (hostile, folder):
        federation.ended(federation.run())
        logs = "".join(log.read_text(errors="replace") for log in folder.rglob("*.log"))
    assert f"the coordinator has refused this node: {said}" in logs
    events = [json.loads(line) for line in federation.events()]
    assert {(event["node"], event["reason"]) for event in events if event["event"] == "refused node"} == {
        (hostile, said)
    }
    assert [row.get(MISSING, 0) for row in federation.rows()] == [1, 1, 1]


def test_nodes_whose_clocks_are_ahead_or_behind_take_part(federation, tmp_path):
    federation.make(rounds=2)
    federation.environment.update(patching(tmp_path / "clocks", _CLOCKS))
    federation.call("up")
    federation.ended(federation.run())
    assert [row["contributors"] for row in federation.rows()] == [[0, 1, 2], [0, 1, 2]]
    assert federation.digest() == federation.undisturbed()


@pytest.mark.parametrize("fault", ["wrong CA", "unregistered key"])
def test_a_stranger_is_refused_and_disturbs_no_run(federation, tmp_path, fault):
    federation.make(rounds=1)
    federation.call("up")
    other, ours = tmp_path / "other", federation.app.certificates / "ca.crt"
    certificates.make_certificates(other)
    certificates.write_node_key(other / "node-1")
    authority = other / "ca.crt" if fault == "wrong CA" else ours
    status = stranger(federation, authority, other / "node-1")
    # At the front's status 401 Flower's SuperNode ends itself, with exit status 0.
    assert status != 0 or fault == "unregistered key"
    said = (federation.app.logs / "another.log").read_text()
    assert ("CERTIFICATE_VERIFY_FAILED" if fault == "wrong CA" else "SuperNode terminated") in said
    federation.ended(federation.run())
    assert federation.digest() == federation.undisturbed()
