"""Nodes that are slow, gone, back again or forgetful, and servers that stop: the run goes on or can be resumed."""

import shutil
import threading
import time
from dataclasses import replace

import pytest

from fedblade.core.errors import RunFailed
from fedblade.engines.nodes import Reply
from fedblade.flower._node import Node
from fedblade.flower.app import Deployment
from fedblade.results import CONFIG, RunDirectory
from support.node_runs import EVERYONE, QUICK, Far, alone, config_of, digest, trained


def losing(*lost):
    """Replies that never arrive: pairs of round and client. Their nodes have trained, and kept what they keep."""

    def tamper(request, reply):
        return [] if request.kind == "train" and (request.facts["round"], request.facts["client"]) in lost else [reply]

    return tamper


def opened(config, folder, *, resume):
    directory = RunDirectory(folder / "run")
    directory.open(resume=resume)
    directory.write(CONFIG, config.to_toml())
    return directory


class Stopped(Exception):
    """The server's process ends."""


@pytest.mark.parametrize("method", ["scaffold", "fedblade", "feddyn"])
def test_a_straggler_is_left_out_of_a_round_and_takes_part_in_the_next(method, tmp_path):
    config = config_of(method, rounds=4, **EVERYONE)
    run = Far(config, tmp_path, tamper=losing((1, 2), (2, 2)))
    far = run.trained()
    # Its state of the rounds that were not used is not used either.
    assert digest(far) == digest(alone(config, {1: [2], 2: [2]}))
    assert [row.get("count_missing_clients", 0) for row in far.history] == [0, 1, 1, 0]
    whole, without = [0, 1, 2, 3, 4], [0, 1, 3, 4]
    assert [row["contributors"] for row in far.history] == [whole, without, without, whole]
    late = {"event": "late", "kind": "train", "client": 2, "node": "102", "seconds": QUICK.round_seconds}
    assert run.events == [late | {"round": 2}, late | {"round": 3}]


def test_states_of_unused_rounds_do_not_push_the_used_one_out(tmp_path):
    config = config_of("scaffold", rounds=9, **EVERYONE)
    unused = range(1, 8)
    run = Far(config, tmp_path, tamper=losing(*((round_, 2) for round_ in unused)))
    far = run.trained()
    assert digest(far) == digest(alone(config, {round_: [2] for round_ in unused}))
    assert all("count_lost_states" not in row for row in far.history)
    (kept,) = (tmp_path / "node2").glob("*/*/2")
    assert sorted(path.stem for path in kept.iterdir()) == ["000000", "000008"]


def test_nodes_observe_at_the_same_time_and_not_for_longer_than_a_round(tmp_path):
    """What diagnostics take is no part of a round's time; five clocks that ran beside each other are not added up."""
    config = config_of("fedavg", rounds=1, **EVERYONE)

    def observing(request, reply):
        return [replace(reply, facts={**reply.facts, "seconds": 1e6}) if request.kind == "train" else reply]

    (row,) = Far(config, tmp_path, tamper=observing).trained().history
    assert 0 <= row["seconds"] < 10


def test_a_round_ends_by_its_deadline(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)
    run = Far(config, tmp_path, Deployment(round_seconds=0.3), tamper=losing((0, 2)))
    setup = run.setup()
    began = time.monotonic()
    far = trained(setup)
    # It waits as long as it may and no longer; the rest is training.
    assert 0.3 <= time.monotonic() - began < 30
    assert digest(far) == digest(alone(config, {0: [2]}))


def test_below_the_quorum_only_the_missing_are_asked_again(tmp_path):
    config = config_of("scaffold", rounds=2, **EVERYONE)
    left = [(1, 0), (1, 2), (1, 4)]

    def tamper(request, reply):
        key = (request.facts.get("round"), request.facts.get("client"))
        if request.kind == "train" and key in left:
            left.remove(key)
            return []
        return [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert digest(far) == digest(alone(config))
    *late, event = run.events
    assert [(each["event"], each["round"], each["client"], each["node"]) for each in late] == [
        ("late", 2, 0, "100"), ("late", 2, 2, "102"), ("late", 2, 4, "104")
    ]  # fmt: skip
    assert (event["event"], event["round"], event["replies"], event["wanted"]) == ("too few replies", 2, 2, 3)
    again = [r.facts["client"] for r in run.transport.asked if r.kind == "train" and r.facts["attempt"] == 1]
    assert again == [0, 2, 4]


def trainings(monkeypatch):
    """The pairs of round and client for which a node has trained."""
    done, train = [], Node._train

    def counted(self, setup, client, facts, tensors):
        done.append((facts["round"], client))
        return train(self, setup, client, facts, tensors)

    monkeypatch.setattr(Node, "_train", counted)
    return done


@pytest.mark.parametrize("method", ["scaffold", "fedblade"])
def test_replies_to_an_earlier_attempt_count_and_nobody_trains_twice(method, monkeypatch, tmp_path):
    """Every node needs longer than an attempt, and answers every request: also those that nobody needs any more.

    There are many attempts, because a busy machine needs longer still.
    """
    config = config_of(method, rounds=3, **EVERYONE)
    run = Far(config, tmp_path, Deployment(round_seconds=0.4, quorum=1.0, attempts=20))
    run.transport.slow = dict.fromkeys(range(100, 105), 0.6)
    done = trainings(monkeypatch)
    setup = run.setup()
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    assert sorted(done) == [(round_, client) for round_ in range(3) for client in range(5)]
    assert {event["event"] for event in run.events} == {"late", "too few replies"}
    assert all(row.get("count_refused_replies", 0) == 0 for row in far.history)


def test_a_request_whose_reply_was_lost_is_answered_again_from_the_disk_of_the_node(monkeypatch, tmp_path):
    config = config_of("scaffold", rounds=2, **EVERYONE)
    lost = {(1, client): True for client in range(3)}

    def tamper(request, reply):
        return (
            []
            if request.kind == "train" and lost.pop((request.facts["round"], request.facts["client"]), 0)
            else [reply]
        )

    run = Far(config, tmp_path, tamper=tamper)
    done = trainings(monkeypatch)
    assert digest(run.trained()) == digest(alone(config))
    assert sorted(done) == [(round_, client) for round_ in range(2) for client in range(5)]
    # Another round is another question, and a broken file is no answer.
    answers = list(tmp_path.glob("node*/*/answers/*"))
    assert len(answers) == 5
    for answer in answers:
        answer.write_bytes(b"broken")
    lost |= {(1, client): True for client in range(3)}
    assert digest(Far(config, tmp_path / "again", tamper=tamper).trained()) == digest(alone(config))


def test_a_round_that_ends_without_a_quorum_says_who_is_missing_and_why(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)
    run = Far(config, tmp_path, QUICK.model_copy(update={"quorum": 0.6, "attempts": 1}))
    setup = run.setup()
    run.transport.offline = {100}

    def tamper(request, reply):
        client = request.facts.get("client")
        gone = replace(reply, node=None, error="Flower: node is unavailable (code 5)", facts={}, tensors={})
        failed = replace(reply, error="it cannot write to its folder", facts={}, tensors={})
        return {1: [], 2: [failed], 3: [gone]}.get(client, [reply])

    run.transport.tamper = tamper
    with pytest.raises(RunFailed) as stopped:
        trained(setup)
    assert str(stopped.value) == (
        "round 1: 1 of 5 clients gave a usable reply in 1 attempt of 0.05 s; 3 are needed (flower.quorum). Missing "
        "clients: without a node: client 0; node lost: client 3 (client 3: Flower: node is unavailable (code 5)); "
        "did not answer: client 1; refused: client 2 (client 2: it cannot write to its folder). Look at "
        "deployment.jsonl in the run's folder, then go on with --resume."
    )


def test_attempts_wait_for_a_node_that_is_on_its_way_back(tmp_path):
    config = config_of("scaffold", rounds=2, **EVERYONE)
    run = Far(config, tmp_path, Deployment(round_seconds=20, quorum=1.0, attempts=2))
    setup = run.setup()
    run.transport.offline.add(102)

    def back():
        run.transport.incarnations[102] += 1
        run.transport.offline.clear()

    timer = threading.Timer(1.5, back)
    timer.start()
    far = trained(setup)
    timer.join()
    assert digest(far) == digest(alone(config))
    assert [event["event"] for event in run.events] == ["no node", "too few replies"]


def test_without_a_quorum_the_run_stops_and_can_be_resumed_to_the_undisturbed_model(tmp_path):
    config = config_of("scaffold", rounds=3, **EVERYONE)
    lost = {(1, client) for client in (1, 2, 3)}
    run = Far(config, tmp_path, tamper=losing(*lost))
    directory = opened(config, tmp_path, resume=False)
    with pytest.raises(
        RunFailed,
        match=r"round 2: 2 of 5 clients gave a usable reply in 3 .*3 are needed.*answer: clients 1, 2 and 3.*--resume",
    ):
        run.trained(directory)
    directory.close()
    assert not (tmp_path / "run" / "checkpoints" / "waiting").exists()
    assert [event["event"] for event in run.events] == [*["late"] * 3, "too few replies"] * 3
    run.transport.tamper = None
    directory = opened(config, tmp_path, resume=True)
    far = run.trained(directory)
    directory.close()
    assert digest(far) == digest(alone(config))
    assert [row["round"] for row in far.history] == [1, 2, 3]


@pytest.mark.parametrize("method", ["scaffold", "fedgela", "ditto"])
def test_a_server_that_stops_goes_on_to_the_same_model(method, tmp_path):
    config = config_of(method, rounds=4, **EVERYONE)
    stop = [True]

    def tamper(request, reply):
        if stop and request.kind == "train" and request.facts["round"] == 2 and request.facts["client"] == 3:
            # Some clients have answered by now, and have a state of this round.
            raise Stopped
        return [reply]

    run = Far(config, tmp_path, tamper=tamper)
    directory = opened(config, tmp_path, resume=False)
    with pytest.raises(Stopped):
        run.trained(directory)
    directory.close()
    stop.clear()
    directory = opened(config, tmp_path, resume=True)
    far = run.trained(directory)
    directory.close()
    assert digest(far) == digest(alone(config))
    tokens = {request.facts["token"] for request in run.transport.asked if request.kind == "train"}
    assert len(tokens) == 1


def test_another_run_on_the_same_nodes_finds_nothing_of_the_first(tmp_path):
    config = config_of("scaffold", **EVERYONE)
    first = Far(config, tmp_path)
    first.trained()
    shutil.rmtree(tmp_path / "run")
    second = Far(config, tmp_path)
    assert digest(second.trained()) == digest(alone(config))
    tokens = {
        request.facts["token"] for run in (first, second) for request in run.transport.asked if request.kind == "train"
    }
    assert len(tokens) == 2


def test_a_node_that_comes_back_is_asked_again_in_the_same_round(tmp_path):
    config = config_of("scaffold", **EVERYONE)
    run = Far(config, tmp_path, QUICK.model_copy(update={"round_seconds": 60.0}))
    setup = run.setup()
    run.transport.forgetful.add(102)
    far = trained(setup)
    assert digest(far) == digest(alone(config))
    assert run.events == []
    asked = [r.facts["round"] for r in run.transport.asked if r.kind == "train" and r.node == 102]
    assert asked == [0, 0, 1]
    # The next round greets it, as it might speak for other clients now.
    assert [r.node for r in run.transport.asked if r.kind == "hello"] == [100, 101, 102, 103, 104, 102]


def test_a_node_that_is_gone_is_left_out_until_it_returns(tmp_path):
    config = config_of("scaffold", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)
    setup = run.setup()

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 4:
            run.transport.offline = {101} if request.facts["round"] == 0 else set()
        return [reply]

    run.transport.tamper = tamper
    far = trained(setup)
    assert digest(far) == digest(alone(config, {1: [1]}))
    assert run.events == [{"event": "no node", "round": 2, "kind": "train", "client": 1}]
    assert [row.get("count_missing_clients", 0) for row in far.history] == [0, 1, 0]


def test_the_first_client_is_the_first_that_is_there(tmp_path):
    config = config_of("fedavg", rounds=1, **{"clients_per_round": 5, "evaluation.metrics": ["local_spectrum"]})
    run = Far(config, tmp_path)
    setup = run.setup()
    run.transport.offline = {100}
    far = trained(setup)
    near = alone(config, {0: [0]})
    assert far.diagnostics.records() == near.diagnostics.records()
    assert far.diagnostics.records()
    assert run.refused() == []


def test_a_carrier_that_answers_for_a_node_says_why(tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE)

    def tamper(request, reply):
        gone = request.kind == "train" and request.facts["client"] == 3
        return [Reply(reply.request, None, error="Flower: node is unavailable (code 5)")] if gone else [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert digest(far) == digest(alone(config, {0: [3]}))
    (event,) = run.events
    assert (event["event"], event["node"]) == ("lost", "103")
    assert event["reason"] == "Flower: node is unavailable (code 5)"
    assert far.history[0]["count_missing_clients"] == 1
    assert "count_refused_replies" not in far.history[0]


def test_a_node_that_is_gone_but_still_listed_does_not_use_up_the_attempts(tmp_path):
    """For a while Flower both lists a node and answers in its place that it is gone."""
    config = config_of("fedavg", rounds=1, **EVERYONE)
    run = Far(config, tmp_path, Deployment(round_seconds=20, quorum=1.0, attempts=2))

    def tamper(request, reply):
        gone = request.kind == "train" and request.node == 103 and not run.transport.incarnations[103]
        return [Reply(reply.request, None, error="Flower: node is unavailable (code 5)")] if gone else [reply]

    run.transport.tamper = tamper
    back = threading.Timer(1.0, lambda: run.transport.incarnations.update({103: 1}))
    back.start()
    far = run.trained()
    back.join()
    assert digest(far) == digest(alone(config))
    assert [event["event"] for event in run.events] == ["lost", "too few replies"]


def test_a_node_that_lost_its_disk_starts_afresh_and_says_so(tmp_path):
    config = config_of("scaffold", rounds=3, **EVERYONE)
    run = Far(config, tmp_path)

    def tamper(request, reply):
        if request.kind == "train" and request.facts["round"] == 1 and request.facts["client"] == 4:
            shutil.rmtree(tmp_path / "node2")
            (torn,) = (tmp_path / "node3").glob("*/*/3/000001.safetensors")
            torn.write_bytes(b"")
        return [reply]

    run.transport.tamper = tamper
    far = run.trained()
    assert [row.get("count_lost_states", 0) for row in far.history] == [0, 0, 2]
    assert run.events == []
    assert digest(far) != digest(alone(config))


def test_own_models_need_someone_to_measure_them(tmp_path):
    config = config_of("ditto", rounds=1, **EVERYONE)
    run = Far(config, tmp_path, tamper=lambda request, reply: [] if request.kind == "measure" else [reply])
    with pytest.raises(RunFailed, match="0 of 5 clients measured the model after round 1"):
        run.trained()
