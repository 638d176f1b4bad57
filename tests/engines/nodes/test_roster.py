"""Which node speaks for which client: nodes that come later, twice, with other data, or with nonsense."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.engines.nodes import _roster, own_protocol
from fedblade.flower._node import Node
from fedblade.flower.app import Deployment
from support.node_runs import EVERYONE, QUICK, Far, alone, config_of, digest, nodes, trained


def test_two_nodes_for_one_client_are_refused_at_the_start(tmp_path):
    run = Far(
        config_of("fedavg", rounds=1), tmp_path, there={**nodes(tmp_path), 200: Node((3,), None, tmp_path, "cpu")}
    )
    with pytest.raises(RunFailed, match="node 200 claims client 3, for which node 103 speaks"):
        run.setup()


def test_a_second_node_for_a_client_is_refused_while_the_first_is_there_and_takes_over_when_it_is_gone(tmp_path):
    config = config_of("scaffold", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    # It has the folder of the first, as the same machine under another key would.
    run.transport.there[200] = replace(run.transport.there[103])
    run.transport.incarnations[200] = 0

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            run.transport.offline = {103}
            run.transport.incarnations[200] += 1
        return [reply]

    run.transport.tamper = tamper
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    (event,) = run.events
    assert event["event"] == "refused node"
    assert event["reason"] == "node 200 claims client 3, for which node 103 speaks"
    assert [r.node for r in run.transport.asked if r.kind == "train" and r.facts["client"] == 3] == [103, 200, 200]


def test_a_silent_newcomer_holds_up_one_round_at_most(tmp_path):
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    run.transport.there[200] = Node((3,), None, tmp_path / "silent", "cpu")
    run.transport.tamper = lambda request, reply: [] if request.node == 200 else [reply]
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    assert [r.node for r in run.transport.asked if r.kind == "hello"].count(200) == 1


def test_a_node_that_returns_with_other_samples_is_refused(tmp_path):
    config = config_of("fedavg", rounds=2, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            run.transport.incarnations[102] += 1
        if request.kind == "hello" and request.node == 102:
            held = reply.facts["clients"]["2"]
            return [replace(reply, facts={"clients": {"2": {**held, "counts": held["counts"][::-1]}}})]
        return [reply]

    run.transport.tamper = tamper
    far = trained(setup)
    refused, *missed = run.events
    assert (refused["node"], refused["reason"]) == ("102", "client 2 holds other samples than when the run began")
    assert [(event["event"], event["round"], event["client"]) for event in missed] == [("no node", 2, 2)]
    assert [r.facts["round"] for r in run.transport.asked if r.kind == "train" and r.node == 102] == [0]
    assert [row.get("count_missing_clients", 0) for row in far.history] == [0, 1]
    assert digest(far) == digest(alone(config, {1: {2}}))


def returning(run, change):
    """Node 102 comes back after each round; what it says when it is greeted is `change` of greeting and reply."""
    greetings = []

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 4 and request.facts["round"] < 2:
            run.transport.incarnations[102] += 1
        if request.kind == "hello" and request.node == 102:
            greetings.append(request)
            return [change(len(greetings), reply)]
        return [reply]

    return tamper


def test_a_node_that_returns_with_its_own_samples_takes_part_again(tmp_path):
    """Refused after the first round, back as it was after the second."""
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()

    def change(number, reply):
        held = reply.facts["clients"]["2"]
        return (
            replace(reply, facts={"clients": {"2": {**held, "counts": held["counts"][::-1]}}}) if number == 1 else reply
        )

    run.transport.tamper = returning(run, change)
    far = trained(setup)
    assert [r.facts["round"] for r in run.transport.asked if r.kind == "train" and r.node == 102] == [0, 2]
    assert digest(far) == digest(alone(config, {1: {2}}))


@pytest.mark.parametrize(
    "change",
    [
        lambda reply: replace(reply, error="the disk is not there yet", facts={}),
        lambda reply: replace(reply, facts={"clients": {"2": {**reply.facts["clients"]["2"], "protocol": 0}}}),
        lambda reply: replace(reply, facts={"clients": {"2": {**reply.facts["clients"]["2"], "input_shape": [2**40]}}}),
    ],
)
def test_a_node_that_returns_and_cannot_be_believed_speaks_for_nobody_until_it_can(change, tmp_path):
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    run.transport.tamper = returning(run, lambda number, reply: change(reply) if number == 1 else reply)
    far = trained(setup)
    assert [r.facts["round"] for r in run.transport.asked if r.kind == "train" and r.node == 102] == [0, 2]
    assert [row.get("count_missing_clients", 0) for row in far.history] == [0, 1, 0]


@pytest.mark.parametrize(
    "first", [lambda reply: [replace(reply, error="not now", facts={})], lambda _: []], ids=["failed", "missed"]
)
def test_a_node_whose_greeting_failed_or_was_missed_is_greeted_again_and_trains_then(first, monkeypatch, tmp_path):
    """What it holds is not known until it has answered."""
    monkeypatch.setattr(_roster, "_AGAIN_SECONDS", 0.0)
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    greetings = []

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 4 and request.facts["round"] == 0:
            run.transport.incarnations[102] += 1
        if request.kind == "hello":
            greetings.append(request.node)
            return first(reply) if len(greetings) == 1 else [reply]
        return [reply]

    run.transport.tamper = tamper
    far = trained(setup)
    assert greetings == [102, 102]
    assert [r.facts["round"] for r in run.transport.asked if r.kind == "train" and r.node == 102] == [0, 2]
    assert [row.get("count_missing_clients", 0) for row in far.history] == [0, 1, 0]
    assert [event["event"] for event in run.events] == ["refused node", "no node"]
    assert digest(far) == digest(alone(config, {1: {2}}))


def test_a_greeting_that_could_not_be_sent_costs_a_node_no_client(tmp_path):
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    send, greeted = run.transport.send, []

    def losing(requests, *rest):
        ids = send(requests, *rest)
        greeted.extend(request.node for request in requests if request.kind == "hello")
        is_first = len(greeted) == 1 and any(request.kind == "hello" for request in requests)
        return [None for _ in ids] if is_first else ids

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 4 and request.facts["round"] == 0:
            run.transport.incarnations[102] += 1
        return [reply]

    run.transport.send, run.transport.tamper = losing, tamper
    assert digest(trained(setup)) == digest(alone(config))
    assert greeted == [102, 102]


def test_a_client_that_a_node_gives_up_is_free_for_another(tmp_path):
    config = config_of("fedavg", rounds=2, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            run.transport.there[101] = replace(run.transport.there[101], clients=(1, 2))
            run.transport.there[102] = Node((3,), None, tmp_path / "other", "cpu")
            run.transport.offline = {103}
            run.transport.incarnations[102] += 1
            run.transport.incarnations[101] += 1
        return [reply]

    run.transport.tamper = tamper
    # Node 101 is greeted first and refused client 2, which node 102 still has then; 102 gives it up for client 3.
    far = trained(setup)
    asked = [(r.facts["client"], r.node) for r in run.transport.asked if r.kind == "train" and r.facts["round"] == 1]
    assert asked == [(0, 100), (1, 101), (3, 102), (4, 104)]
    assert far.history[-1]["count_missing_clients"] == 1


def test_what_a_node_says_cannot_act_on_a_terminal(tmp_path):
    said = "\x1b[2J\r\nrefused: \u202eevil\x00 é"
    config = config_of("fedavg", rounds=1)
    run = Far(config, tmp_path)
    run.transport.tamper = lambda request, reply: [
        replace(reply, error=said, facts={}) if request.node == 102 else reply
    ]
    with pytest.raises(RunFailed) as failed:
        run.setup()
    shown = "\\x1b[2J\\r\\nrefused: \\u202eevil\\x00 é"
    assert f"Node 102 was refused: {shown}. " in str(failed.value)
    assert [event["reason"] for event in run.events] == [shown]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda held: None, "does not say for which clients"),
        (lambda held: {}, "does not say for which clients"),
        (lambda held: {**held, "17": held["2"]}, "speaks for client '17'"),
        (lambda held: {"2": {**held["2"], "counts": [-1] * 10}}, "samples per class"),
        (lambda held: {"2": {**held["2"], "counts": 3}}, "holds 3"),
        (lambda held: {"2": None}, "speaks protocol None"),
        (lambda held: {"2": {**held["2"], "input_shape": [2**40]}}, "shape [1099511627776]; more than"),
        (lambda held: {"2": {**held["2"], "input_shape": [2**14, 2**14]}}, "shape [16384, 16384]; more than"),
    ],
)
def test_a_node_whose_greeting_cannot_be_is_refused_and_named(change, reason, tmp_path):
    config = config_of("fedavg", rounds=1)

    def tamper(request, reply):
        if request.kind == "hello" and request.node == 102:
            return [replace(reply, facts={"clients": change(reply.facts["clients"])})]
        return [reply]

    run = Far(config, tmp_path, tamper=tamper)
    with pytest.raises(
        RunFailed, match=r"no node for client\(s\) 2 of 5. Node 102 was refused: .*Start their nodes"
    ) as failed:
        run.setup()
    assert reason in str(failed.value)
    (event,) = run.events
    assert (event["event"], event["node"]) == ("refused node", "102")
    assert reason in event["reason"]


def test_gathering_waits_for_nodes_that_come_later(tmp_path):
    config = config_of("fedavg", rounds=1)
    run = Far(config, tmp_path, Deployment(wait_seconds=30))
    run.transport.offline = {103}
    asked = []

    def tamper(request, reply):
        asked.append(request.node)
        run.transport.offline = set()
        return [reply]

    run.transport.tamper = tamper
    run.setup()
    assert asked == [100, 101, 102, 104, 103]


def test_a_node_of_several_clients_answers_for_each(tmp_path):
    config = config_of("scaffold", **EVERYONE)
    run = Far(
        config,
        tmp_path,
        there={7: Node((0, 3, 4), None, tmp_path / "a", "cpu"), 8: Node((1, 2), None, tmp_path / "b", "cpu")},
    )
    assert digest(run.trained()) == digest(alone(config))
    assert {request.node for request in run.transport.asked} == {7, 8}


def test_a_node_refuses_clients_that_the_run_does_not_have(tmp_path):
    config = config_of("fedavg", rounds=1)
    run = Far(config, tmp_path, there={**nodes(tmp_path), 9: Node((5,), None, tmp_path, "cpu")})
    run.setup()
    (event,) = run.events
    assert event["node"] == "9"
    assert event["reason"] == "it speaks for a client that the run does not have"
    other = run.transport.there[101].answer
    with pytest.raises(Misconfigured, match=r"speaks for client\(s\) \[1\], not for 2"):
        other(
            "train", {**own_protocol(), "config": config.table(), "num_classes": 0, "data": "shares", "client": 2}, {}
        )


def file_of(folder):
    inputs = np.random.default_rng(0).normal(size=(20, 1, 8, 8)).astype("float32")
    labels = np.arange(20) % 10
    np.savez(folder / "own.npz", x_train=inputs, y_train=labels, x_test=inputs[:10], y_test=labels[:10])
    return str(folder / "own.npz")


@pytest.mark.parametrize(
    ("terms", "own", "said"),
    [
        ({"data": "nodes", "num_classes": 10}, False, 'no data of its own, and the run expects them (flower.data = "n'),
        ({"data": "shares"}, True, "data of its own, and the run gives every client a share of its data (flower.data"),
    ],
)
def test_a_node_refuses_data_other_than_the_run_expects(terms, own, said, tmp_path):
    config = config_of("fedavg", rounds=1)
    file = file_of(tmp_path)
    there = {k: Node((k,), None if own else file, tmp_path / str(k), "cpu") for k in range(4)}
    there[4] = Node((4,), file if own else None, tmp_path / "4", "cpu")
    run = Far(config, tmp_path, QUICK.model_copy(update=terms), there=there)
    with pytest.raises(RunFailed, match=r"no node for client\(s\) 4 of 5. Node 4 was refused: ") as failed:
        run.setup()
    assert said in str(failed.value)
    assert [request.kind for request in run.transport.asked] == ["hello"] * len(run.transport.asked)
    train = {**own_protocol(), "config": config.table(), "num_classes": 10, "data": terms["data"], "client": 4}
    with pytest.raises(Misconfigured, match="data of its own, and the run"):
        there[4].answer("train", train, {})


def test_inputs_of_one_client_are_compared_before_anything_is_built(tmp_path):
    """A shape that is allowed but would fill the memory, from the client whose shape would be taken."""
    config = config_of("fedavg", rounds=1)
    file = file_of(tmp_path)

    def tamper(request, reply):
        if request.node != 4:
            return [reply]
        return [
            replace(reply, facts={"clients": {"4": {**reply.facts["clients"]["4"], "input_shape": [2**13, 2**14]}}})
        ]

    there = {k: Node((k,), file, tmp_path / str(k), "cpu") for k in range(5)}
    terms = QUICK.model_copy(update={"data": "nodes", "num_classes": 10})
    run = Far(config, tmp_path, terms, there=there, tamper=tamper)
    tracemalloc.start()
    try:
        with pytest.raises(
            Misconfigured, match=r"\[8192, 16384\] \(client 4\), \[1, 8, 8\] \(client 0\); expected one"
        ):
            run.setup()
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()
