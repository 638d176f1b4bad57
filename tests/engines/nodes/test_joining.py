"""Clients that join a run between its rounds, what the run folder keeps of them, and who may speak for whom."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower._node import Node
from fedblade.flower.app import split_tables
from fedblade.results import CONFIG, DEPLOYMENT, RunDirectory
from support.node_runs import EVERYONE, QUICK, Far, alone, config_of, digest, trained
from support.three_wards import CHANGES, apart, saved, ward

THREE = QUICK.model_copy(update={"min_clients": 3})
TWO = {"min_clients": 2}


class Stopped(Exception):
    """The server's process ends."""


def opened(run, *, resume):
    """The folder of a run, held as a coordinator holds it before it greets nodes."""
    directory = RunDirectory(run.folder / "run")
    directory.open(resume=resume)
    return directory


def carried_out(run, *, resume=False):
    directory = opened(run, resume=resume)
    try:
        setup = run.setup()
        directory.write(CONFIG, run.config.to_toml())
        return trained(setup, directory)
    finally:
        directory.close()


def coming(run, *nodes, after, stop=None):
    """These nodes come when a round is done; after the round `stop` the server ends, once. Rounds count from 0."""
    run.transport.offline |= set(nodes)
    stops = [stop]

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 0:
            if request.facts["round"] == after:
                run.transport.offline -= set(nodes)
            if stops == [request.facts["round"]]:
                stops.clear()
                raise Stopped
        return [reply]

    run.transport.tamper = tamper
    return run


def first_rounds(run):
    stored = json.loads((run.folder / "run" / DEPLOYMENT).read_text())
    return {int(client): member["first_round"] for client, member in stored["clients"].items()}


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedgela"])
def test_clients_join_between_rounds_and_count_as_missing_before(method, tmp_path):
    config = config_of(method, rounds=4, **EVERYONE)
    run = coming(Far(config, tmp_path, THREE), 103, 104, after=1)
    far = carried_out(run)
    assert [row.get("count_missing_clients", 0) for row in far.history] == [2, 2, 0, 0]
    assert [(e["round"], e["client"], e["node"]) for e in run.events if e["event"] == "joined"] == [
        (3, 3, "103"), (3, 4, "104")
    ]  # fmt: skip
    assert first_rounds(run) == {0: 0, 1: 0, 2: 0, 3: 3, 4: 3}
    if method != "fedgela":  # its exchange before the first round lacks the clients too
        assert digest(far) == digest(alone(config, {0: {3, 4}, 1: {3, 4}}))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedblade"])
def test_a_resumed_run_knows_who_joined_and_when(method, tmp_path):
    """The client joins in round 3, the server ends in round 4, and the last checkpoint is that of round 2."""
    config = config_of(method, rounds=5, **CHANGES, **{"checkpoint.every": 2})
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    whole = carried_out(coming(apart(tmp_path / "whole", files, config=config, **TWO), 51, after=1))
    assert [row.get("count_missing_clients", 0) for row in whole.history] == [1, 1, 0, 0, 0]
    run = coming(apart(tmp_path / "cut", files, config=config, **TWO), 51, after=1, stop=3)
    with pytest.raises(Stopped):
        carried_out(run)
    assert first_rounds(run) == {0: 0, 1: 3, 2: 0}
    far = carried_out(run, resume=True)
    assert digest(far) == digest(whole)
    assert [row["round"] for row in far.history] == [1, 2, 3, 4, 5]
    assert [row.get("count_missing_clients", 0) for row in far.history] == [1, 1, 0, 0, 0]


def test_rounds_that_are_done_again_do_not_have_a_client_that_joined_after_them(tmp_path):
    """The client joins in round 4, the server ends then, and the last checkpoint is that of round 2."""
    config = config_of("scaffold", rounds=5, **CHANGES, **{"checkpoint.every": 2})
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    whole = carried_out(coming(apart(tmp_path / "whole", files, config=config, **TWO), 51, after=2))
    run = coming(apart(tmp_path / "cut", files, config=config, **TWO), 51, after=2, stop=3)
    with pytest.raises(Stopped):
        carried_out(run)
    run.events.clear()
    assert digest(carried_out(run, resume=True)) == digest(whole)
    (event,) = [event for event in run.events if event["event"] == "no node" and event["kind"] == "train"]
    assert (event["round"], event["client"], event["reason"]) == (3, 1, "it joins the run in a later round")


def test_a_client_may_join_when_the_run_is_resumed(tmp_path):
    config = config_of("fedavg", rounds=4, **CHANGES)
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    run = coming(apart(tmp_path, files, config=config, **TWO), 51, after=1, stop=1)
    with pytest.raises(Stopped):
        carried_out(run)
    far = carried_out(run, resume=True)
    assert first_rounds(run) == {0: 0, 1: 2, 2: 0}
    assert [row.get("count_missing_clients", 0) for row in far.history] == [1, 0, 0, 0]


def test_a_resumed_run_refuses_a_node_with_other_samples_than_before(tmp_path):
    config = config_of("fedavg", rounds=3, **CHANGES)
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    run = coming(apart(tmp_path, files, config=config), after=0, stop=1)
    with pytest.raises(Stopped):
        carried_out(run)
    saved(tmp_path / "other", [ward(0), ward(2), ward(2)])
    run.transport.there[51] = replace(run.transport.there[51], data=str(tmp_path / "other" / "1.npz"))
    with pytest.raises(RunFailed, match="Node 51 was refused: client 1 holds other samples than when the run began"):
        carried_out(run, resume=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x[..., 1:], "its inputs have the shape [1, 8, 7]; those of the run have [1, 8, 8]"),
        (lambda x: (x * 255).astype(np.uint8), "its inputs are scaled as (x / 255 - [0.0]) / [1.0]; those of the run"),
    ],
)
def test_a_client_whose_inputs_do_not_fit_the_run_cannot_join(change, said, tmp_path, caplog):
    config = config_of("fedavg", rounds=3, **CHANGES)
    x, y, x_test, y_test = ward(1)
    files = saved(tmp_path / "data", [ward(0), (change(x), y, change(x_test), y_test), ward(2)])
    run = coming(apart(tmp_path, files, config=config, **TWO), 51, after=0)
    far = carried_out(run)
    assert [row["count_missing_clients"] for row in far.history] == [1, 1, 1]
    assert first_rounds(run) == {0: 0, 2: 0}
    (event,) = [event for event in run.events if event["event"] == "refused node"]
    assert (event["node"], event["client"]) == ("51", 1)
    assert event["reason"].startswith(said)
    # The node has the reason in its own log too.
    assert f"the coordinator has refused this node: {said}" in caplog.text


@pytest.mark.parametrize("least", [1, 6])
def test_a_run_begins_with_as_many_clients_as_a_round_needs(least):
    table = config_of("fedavg", **EVERYONE).table()
    with pytest.raises(Misconfigured, match=rf"flower.min_clients = {least}; expected 3 to 5, because a round of all"):
        split_tables(table | {"flower": {"min_clients": least}})
    assert split_tables(table | {"flower": {"min_clients": 3}})[1].min_clients == 3


def test_a_run_without_enough_clients_does_not_begin(tmp_path):
    run = Far(config_of("fedavg", rounds=1), tmp_path, THREE)
    run.transport.offline = {100, 101, 102}
    with pytest.raises(RunFailed, match=r"no node for client\(s\) 0, 1, 2 of 5. The run begins with 3 clients"):
        run.setup()


def test_files_about_members_that_were_changed_are_refused(tmp_path):
    config = config_of("fedavg", rounds=3, **CHANGES)
    files = saved(tmp_path / "data", [ward(k) for k in range(3)])
    run = coming(apart(tmp_path, files, config=config, **TWO), 51, after=0, stop=1)
    with pytest.raises(Stopped):
        carried_out(run)
    path = run.folder / "run" / DEPLOYMENT
    stored = json.loads(path.read_text())
    stored["clients"]["0"]["counts"] = "many"
    path.write_text(json.dumps(stored))
    with pytest.raises(RunFailed, match=r"deployment.json' cannot be read \(client 0 says that it holds 'many'"):
        carried_out(run, resume=True)


def test_a_node_speaks_for_the_clients_alone_that_it_is_admitted_for(tmp_path, caplog):
    admissions = {100 + k: {k} for k in range(5)} | {104: {3}}
    run = Far(config_of("fedavg", rounds=1), tmp_path, admitted=admissions.get)
    with pytest.raises(RunFailed, match=r"client\(s\) 4 of 5. Node 104 was refused: it claims client 4, for which"):
        run.setup()
    assert "the coordinator has refused this node: it claims client 4, for which it is not admitted" in caplog.text


def test_a_client_that_is_admitted_with_another_key_has_another_node(tmp_path):
    """Node 103 stays online: its key is revoked in the first round, and node 200 has the client's new key at once."""
    config = config_of("scaffold", rounds=3, **EVERYONE)
    admissions = {100 + k: {k} for k in range(5)}
    run = Far(config, tmp_path, admitted=lambda node: admissions.get(node, ()))
    run.transport.there[200] = replace(run.transport.there[103])
    run.transport.incarnations[200] = 0
    setup = run.setup()

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            admissions.update({103: set(), 200: {3}})
        return [reply]

    run.transport.tamper = tamper
    assert digest(trained(setup)) == digest(alone(config))
    asked = [r.node for r in run.transport.asked if r.kind == "train" and r.facts["client"] == 3]
    assert asked == [103, 200, 200, 200]
    reasons = [(event["node"], event["reason"]) for event in run.events]
    assert reasons == [
        ("200", "it claims client 3, for which it is not admitted"),
        ("103", "its node is no longer admitted"),
        ("103", "it is no longer admitted for client 3"),
        ("103", "it claims client 3, for which it is not admitted"),
    ]


def test_a_node_for_two_clients_joins_with_both(tmp_path):
    there = {100: Node((0, 1, 2), None, tmp_path / "a", "cpu"), 101: Node((3, 4), None, tmp_path / "b", "cpu")}
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = coming(Far(config, tmp_path, THREE, there=there), 101, after=0)
    assert digest(carried_out(run)) == digest(alone(config, {0: {3, 4}}))
