"""Which node speaks for which client: nodes that come later, twice, with other data, or with nonsense."""

from dataclasses import replace

import pytest
from runs import EVERYONE, Far, alone, config_of, digest, nodes, trained

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower._app import Deployment
from fedblade.flower._node import Node


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
    run.post.there[200] = replace(run.post.there[103])
    run.post.incarnations[200] = 0

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            run.post.offline = {103}
            run.post.incarnations[200] += 1
        return [reply]

    run.post.tamper = tamper
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    (event,) = run.events
    assert event["event"] == "refused node"
    assert event["reason"] == "node 200 claims client 3, for which node 103 speaks"
    assert [r.node for r in run.post.asked if r.kind == "train" and r.facts["client"] == 3] == [103, 200, 200]


def test_a_silent_newcomer_holds_up_one_round_at_most(tmp_path):
    config = config_of("fedavg", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()
    run.post.there[200] = Node((3,), None, tmp_path / "silent", "cpu")
    run.post.tamper = lambda request, reply: [] if request.node == 200 else [reply]
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    assert [r.node for r in run.post.asked if r.kind == "hello"].count(200) == 1


def test_a_node_that_returns_with_other_samples_is_refused(tmp_path):
    config = config_of("fedavg", rounds=2, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 0 and request.facts["client"] == 4:
            run.post.incarnations[102] += 1
        if request.kind == "hello" and request.node == 102:
            held = reply.facts["clients"]["2"]
            return [replace(reply, facts={"clients": {"2": {**held, "counts": held["counts"][::-1]}}})]
        return [reply]

    run.post.tamper = tamper
    trained(setup)
    (event,) = run.events
    assert (event["node"], event["reason"]) == ("102", "client 2 holds other samples than when the run began")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda held: None, "does not say for which clients"),
        (lambda held: {}, "does not say for which clients"),
        (lambda held: {**held, "17": held["2"]}, "speaks for client '17'"),
        (lambda held: {"2": {**held["2"], "counts": [-1] * 10}}, "samples per class"),
        (lambda held: {"2": {**held["2"], "counts": 3}}, "holds 3"),
        (lambda held: {"2": None}, "runs fedblade None"),
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
    run.post.offline = {103}
    asked = []

    def tamper(request, reply):
        asked.append(request.node)
        run.post.offline = set()
        return [reply]

    run.post.tamper = tamper
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
    assert {request.node for request in run.post.asked} == {7, 8}


def test_a_node_refuses_clients_that_the_run_does_not_have(tmp_path):
    config = config_of("fedavg", rounds=1)
    run = Far(config, tmp_path, there={**nodes(tmp_path), 9: Node((5,), None, tmp_path, "cpu")})
    run.setup()
    (event,) = run.events
    assert event["node"] == "9"
    assert "clients 0 to 4" in event["reason"]
    other = run.post.there[101].answer
    with pytest.raises(Misconfigured, match=r"speaks for client\(s\) \[1\], not for 2"):
        other("train", {"config": config.table(), "num_classes": 0, "client": 2}, {})
