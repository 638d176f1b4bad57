"""Replies that are broken or hostile are refused before they touch the sums, with the node and the reason noted."""

import json
import math
from dataclasses import replace

import pytest
import torch

from fedblade.core.tree import tree_map
from fedblade.engines.nodes import Reply
from support.node_runs import Far, alone, config_of, digest

METHOD, LOSS = "fedavg", "loss_supervised"


def tensors(change):
    """Changes every tensor of a reply."""
    return lambda reply: replace(reply, tensors={name: change(leaf) for name, leaf in reply.tensors.items()})


def one(leaf, change):
    """Changes the tensors whose name ends so."""
    return lambda reply: replace(
        reply, tensors={name: change(each) if name.endswith(leaf) else each for name, each in reply.tensors.items()}
    )


def of(start, change):
    """Changes the tensors whose name begins so."""
    return lambda reply: replace(
        reply, tensors={name: change(each) if name.startswith(start) else each for name, each in reply.tensors.items()}
    )


def facts(**changed):
    return lambda reply: replace(reply, facts={**reply.facts, **changed})


def log(name, total=1.0, steps=1):
    def change(reply):
        totals, counted = {**reply.facts["totals"], name: total}, {**reply.facts["steps"], name: steps}
        return replace(reply, facts={**reply.facts, "totals": totals, "steps": counted})

    return change


def without(*keys):
    return lambda reply: replace(reply, facts={k: v for k, v in reply.facts.items() if k not in keys})


def deep(levels):
    nested = []
    for _ in range(levels):
        nested = [nested]
    return nested


REPLIES = {
    "NaN": (tensors(lambda t: t * math.nan), "NaN or infinity"),
    "infinity": (one(".bias", lambda t: t + math.inf), "NaN or infinity"),
    "minus infinity": (one(".bias", lambda t: t - math.inf), "NaN or infinity"),
    "a large norm": (one(".bias", lambda t: t + 1e4), "largest allowed"),
    "a large weight": (one("weight/weight", lambda t: t + 1e7), "largest allowed"),
    "a weight below zero": (one("weight/weight", lambda t: -t), "the client's samples give"),
    "a weight of zero": (one("weight/weight", lambda t: t * 0), "is 0.0; the client's samples give"),
    "a weight that drowns others": (one("weight/weight", lambda t: t * 0 + 1e6), "is 1000000.0; the client's samples"),
    "a weight a little larger": (one("weight/weight", lambda t: t * (1 + 1e-6)), "the client's samples give"),
    "a long update": (of("sums/delta", lambda t: t * 0 + 999.0), "(flower.max_norm)"),
    "another type": (tensors(lambda t: t.float()), "type torch.float32"),
    "whole numbers": (tensors(lambda t: t.long()), "type torch.int64"),
    "complex numbers": (tensors(lambda t: t.to(torch.complex128)), "type torch.complex128"),
    "another shape": (one(".bias", lambda t: t[None]), "has shape"),
    "oversized": (one(".bias", lambda t: torch.zeros(1_000_000, dtype=t.dtype)), "has shape [1000000]"),
    "no tensors": (lambda reply: replace(reply, tensors={}), "differ in"),
    "a tensor more": (lambda r: replace(r, tensors={**r.tensors, "sums/delta/x": torch.zeros(1)}), "differ in 1 names"),
    "other names": (lambda r: replace(r, tensors={f"x{k}": v for k, v in r.tensors.items()}), "differ in"),
    "another round": (facts(round=7), "answers round 7"),
    "another client": (facts(client=0), "answers client 0"),
    "a client as text": (facts(client="4"), "answers client '4'"),
    "another kind": (facts(kind="collect"), "answers kind 'collect'"),
    "no client": (without("client"), "answers client None"),
    "first of the cohort": (facts(is_first=True), "answers is_first True"),
    "sums of the first": (facts(sent={"sums": [], "every": [], "first": ["x"]}), "as first"),
    "a list of what is sent": (facts(sent=["sums"]), "what it sends"),
    "a kind less": (facts(sent={"sums": [], "every": []}), "what it sends"),
    "names that are none": (facts(sent={"sums": None, "every": [], "first": []}), "sends None as sums"),
    "names as a mapping": (facts(sent={"sums": {"delta": 1}, "every": [], "first": []}), "type dict as sums"),
    "names as numbers": (facts(sent={"sums": [1, 2], "every": [], "first": []}), "sends [1, 2] as sums"),
    "no log": (facts(totals=None), "no log"),
    "a log that is a list": (facts(totals=[]), "no log"),
    "steps missing": (facts(steps={}), "its log"),
    "a name of the history": (log("test_accuracy", 100.0), "'test_accuracy'"),
    "the round's time": (log("seconds", 1e9), "'seconds'"),
    "the server's counters": (log("count_refused_replies", 1e6), "'count_refused_replies'"),
    "a long name": (log("loss_" + "x" * 10_000), "no loss or counter"),
    "an infinite loss": (log(LOSS, math.inf), "inf"),
    "a NaN loss": (log(LOSS, math.nan), "nan"),
    "a loss as text": (log(LOSS, "0.1"), "'0.1'"),
    "a loss as a truth value": (log(LOSS, True), "True"),
    "a loss without end": (log(LOSS, 10**4000), "type int"),
    "half a step": (log(LOSS, 1.0, 0.5), "0.5 steps"),
    "steps below zero": (log(LOSS, 1.0, -1), "-1 steps"),
    "a count below zero": (log("count_idle_clients", -5.0), "no count"),
    "an invented loss": (log("loss_evil"), "'loss_evil', which is no loss or counter"),
    "an invented counter": (log("count_evil", 1e30), "'count_evil', which is no loss or counter"),
    "steps without end": (log(LOSS, 1e30, 10**29), "which cannot be; the client's samples give"),
    "more steps than planned": (log(LOSS, 1.0, 1000), "in 1000 steps"),
    "many lost states": (log("count_lost_states", 2.0), "no count from 0 to 1"),
    "many times a lost state": (log("count_lost_states", 1.0, 2), "in 2 steps"),
    "idle after steps": (log("count_idle_clients", 1.0, 0), "no count from 0 to 0"),
    "batches left out that are not": (log("count_skipped_singletons", 5.0, 0), "no count from 0 to 0"),
    "many names": (facts(totals=dict.fromkeys(map("loss_{}".format, range(9999)), 1.0)), "its log"),
    "huge facts": (facts(more="x" * 10_000_000), "states 'more'"),
    "deep facts": (facts(more=deep(900)), "states 'more'"),
    "a deep log": (log(LOSS, deep(900)), "[a value of type list]"),
    "bytes as text": (facts(bytes_up="many"), "not numbers"),
    "no seconds": (without("seconds"), "not numbers"),
    "NaN seconds": (facts(seconds=math.nan), "not numbers"),
    "seconds without end": (facts(seconds=1e30), "not numbers of a possible size"),
    "seconds below zero": (facts(seconds=-1.0), "not numbers"),
    "bytes as a truth value": (facts(bytes_up=True), "not numbers"),
    "kept in words": (facts(kept="yes"), "kept"),
    "an error": (lambda reply: Reply(reply.request, reply.node, error="no disk" * 1000), "no disk"),
    "nothing at all": (lambda reply: replace(reply, facts={}, tensors={}), "answers client None"),
}


@pytest.fixture(scope="module")
def config():
    return config_of(METHOD, rounds=1, **{"clients_per_round": 4, "evaluation.metrics": []})


@pytest.fixture(scope="module")
def cohort(config, tmp_path_factory):
    return alone(config).history[0]["clients"]


@pytest.fixture(scope="module")
def left_out(config, cohort):
    """The run without the last client of the cohort."""
    return alone(config, {0: cohort[-1:]})


def tampered(change, client):
    def tamper(request, reply):
        return [change(reply)] if request.kind == "train" and request.facts["client"] == client else [reply]

    return tamper


@pytest.mark.parametrize("name", REPLIES)
def test_a_bad_reply_is_refused_and_leaves_the_sums_alone(name, config, cohort, left_out, tmp_path):
    change, reason = REPLIES[name]
    bad = cohort[-1]
    run = Far(config, tmp_path, tamper=tampered(change, bad))
    far = run.trained()
    assert digest(far) == digest(left_out)
    (event,) = run.refused()
    assert reason in event["reason"]
    assert len(event["reason"]) <= 500
    assert (event["client"], event["node"], event["round"]) == (bad, str(100 + bad), 1)
    json.dumps(event)
    row = far.history[0]
    assert (row["count_refused_replies"], row["count_missing_clients"]) == (1, 1)
    assert {key: row[key] for key in left_out.history[0] if key.startswith("loss")} == {
        key: value for key, value in left_out.history[0].items() if key.startswith("loss")
    }


def test_the_same_reply_twice_counts_once(config, cohort, tmp_path):
    run = Far(config, tmp_path, tamper=lambda request, reply: [reply, reply] if request.kind == "train" else [reply])
    far = run.trained()
    assert digest(far) == digest(alone(config))
    assert "count_refused_replies" not in far.history[0]
    assert "count_missing_clients" not in far.history[0]
    assert {(event["event"], event["node"], event["reason"]) for event in run.events} == {
        ("ignored reply", str(100 + client), "its request is answered or closed") for client in cohort
    }


def test_a_reply_of_an_earlier_round_is_refused(tmp_path):
    config = config_of(METHOD, **{"clients_per_round": 5, "evaluation.metrics": []})
    old = {}

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == 2:
            if request.facts["round"] == 0:
                old["reply"] = reply
            else:
                # Once under its old number and once as if it were the answer.
                return [old["reply"], replace(old["reply"], request=reply.request)]
        return [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert digest(far) == digest(alone(config, {1: [2]}))
    late, wrong = run.refused()
    assert late["reason"] == "it answers no request of this round"
    assert wrong["reason"] == "it answers round 0; asked was 1"
    assert far.history[1]["count_refused_replies"] == 2
    assert far.history[1]["count_missing_clients"] == 1


def test_another_node_cannot_answer_in_place_of_the_one_that_was_asked(config, cohort, tmp_path):
    bad = cohort[-1]

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == bad:
            return [replace(reply, node=100 + cohort[0], tensors=tree_map(torch.zeros_like, reply.tensors)), reply]
        return [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert digest(far) == digest(alone(config))
    (event,) = run.refused()
    assert event["node"] == str(100 + cohort[0])
    assert f"a request to node {100 + bad}" in event["reason"]


def test_sums_of_the_first_client_come_from_the_first_alone(tmp_path):
    config = config_of("fedavg", rounds=1, **{"evaluation.metrics": ["local_spectrum"]})
    first = alone(config).history[0]["clients"][0]
    taken = {}

    def tamper(request, reply):
        if request.kind != "train":
            return [reply]
        if request.facts["client"] == first:
            taken.update(reply.tensors)
            assert reply.facts["sent"]["first"]
            return [reply]
        sent = {**reply.facts["sent"], "first": ["local_moments"]}
        more = {name: leaf for name, leaf in taken.items() if name.startswith("first/")}
        return [replace(reply, facts={**reply.facts, "sent": sent}, tensors={**reply.tensors, **more})]

    run = Far(config, tmp_path, tamper=tamper)
    run.deployment = run.deployment.model_copy(update={"quorum": 0.1})
    run.trained()
    assert [event["reason"] for event in run.refused()] == [
        "it sends what only the first client of a cohort was asked for"
    ] * 2


@pytest.mark.parametrize("method", ["fedgela", "ccvr"])
def test_what_nodes_collect_and_tune_is_judged_too(method, tmp_path):
    config = config_of(method, rounds=1, **{"evaluation.protocol": "pers_etf", "evaluation.metrics": []})

    def tamper(request, reply):
        bad = request.kind in ("collect", "tune") and request.facts["client"] == 4
        return [replace(reply, facts={**reply.facts, "totals": 3})] if bad else [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert {event["client"] for event in run.refused()} == {4}
    assert len(run.refused()) == {"fedgela": 1, "ccvr": 2}[method]
    assert [row["accuracy"] is None for row in far.clients] == [False] * 4 + [True]


def test_a_node_that_does_not_tune_is_not_measured_untuned(tmp_path):
    config = config_of("fedavg-ft", rounds=1, **{"evaluation.protocol": "ft", "evaluation.metrics": []})

    def tamper(request, reply):
        return [] if request.kind == "tune" and request.facts["client"] == 1 else [reply]

    run = Far(config, tmp_path, tamper=tamper)
    far = run.trained()
    assert [row["client"] for row in far.clients if row["accuracy"] is None] == [1]
    assert all(request.facts["client"] != 1 for request in run.transport.asked if request.kind == "measure")
