"""Whatever is done to an honest reply or greeting, it is admitted with the same effect or refused; nothing breaks."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.cohort import Cohort
from fedblade.core.tree import tree_digest, tree_norm
from fedblade.engines.nodes import ClientDescription, Reply, RoundRules, own_protocol
from fedblade.engines.nodes._descriptions import InvalidDescription, read_descriptions
from fedblade.engines.nodes._templates import Templates
from fedblade.engines.packing import unpack
from fedblade.engines.sequential import SequentialEngine
from fedblade.runs import diagnostic_request
from support.node_runs import Far, config_of, trained

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
TYPES = st.sampled_from([torch.float64, torch.float32, torch.int64, torch.bool, torch.complex64])
TENSORS = st.builds(lambda shape, dtype: torch.zeros(shape, dtype=dtype), SHAPES, TYPES)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A template, what it was asked of a client, its reply, and what its sums are made of."""
    seen = []

    def tamper(request, reply):
        seen.append((request, reply))
        return [reply]

    config = config_of("fedavg", rounds=1, **{"evaluation.metrics": ["drift", "local_spectrum"]})
    run = Far(config, tmp_path_factory.mktemp("honest"), tamper=tamper)
    setup = run.setup()
    trained(setup)
    request, reply = next(each for each in seen if each[0].facts.get("is_first"))
    declared, diagnostics = setup.method.sums, diagnostic_request(setup, setup.metrics)
    cohort = Cohort(setup.planner, 0, tuple(int(client) for client in setup.cohorts[0]))
    templates = Templates(setup.problem, SequentialEngine(setup.problem), RoundRules())
    template = templates.of_training(setup.start, cohort, declared, diagnostics, 0.1)
    measures = templates.of_passes(setup.start, setup.accuracy.passes)
    made = {"template": template, "declared": declared, "diagnostics": diagnostics, "measures": measures}
    made["model"] = setup.start.params
    asked = {key: request.facts[key] for key in ("client", "round", "is_first")} | {"kind": "train"}
    assert template.refusal(reply, asked) is None
    assert reply.facts["sent"]["every"]
    assert reply.facts["sent"]["first"]
    return made, asked, reply, effect(made, reply)


def effect(made, reply):
    """What is added to the sums."""
    outcome = unpack(reply.tensors, reply.facts, made["declared"], made["diagnostics"])
    trees = {**outcome.sums.trees, **outcome.observed.totals()}
    return tree_digest({f"{name}/{leaf}": value for name, tree in trees.items() for leaf, value in tree.items()})


def places(value, path=()):
    """Every place in nested facts."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


def changed(facts, path, value):
    found = copy.deepcopy(facts)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return found


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_changed_facts(honest, data):
    made, asked, reply, before = honest
    path = data.draw(st.sampled_from([each for each in places(reply.facts) if each]))
    facts = changed(reply.facts, path, data.draw(PLAIN))
    told = replace(reply, facts=facts)
    reason = made["template"].refusal(told, asked)
    if reason is None:
        # What is only told (losses, times) may be anything of its kind; sums are as they were.
        assert effect(made, told) == before
        means = unpack(told.tensors, told.facts, made["declared"], made["diagnostics"]).log.means()
        json.dumps(means, allow_nan=False)
        assert means.keys() <= reply.facts["totals"].keys()
    else:
        assert isinstance(reason, str)
        assert reason


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_facts_of_any_kind(honest, data):
    made, asked, reply, _ = honest
    facts = data.draw(st.dictionaries(st.sampled_from([*reply.facts, "other"]), PLAIN))
    assert made["template"].refusal(replace(reply, facts=facts), asked)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_changed_tensors(honest, data):
    made, asked, reply, _ = honest
    key = data.draw(st.sampled_from(sorted(reply.tensors)))
    name = data.draw(st.just(key) | st.text(max_size=12))
    tensors = {**reply.tensors, name: data.draw(TENSORS)}
    if data.draw(st.booleans()):
        tensors.pop(key)
    told = replace(reply, tensors=tensors)
    if made["template"].refusal(told, asked) is None:
        for each, leaf in told.tensors.items():
            assert leaf.shape == reply.tensors[each].shape
            assert leaf.dtype == reply.tensors[each].dtype
            assert bool(torch.isfinite(leaf).all())
        assert effect(made, told)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_scaled_tensors(honest, data):
    """Whatever is admitted has the client's weight and updates that are not longer than they may be."""
    made, asked, reply, _ = honest
    key = data.draw(st.sampled_from(sorted(reply.tensors)))
    factor = data.draw(st.floats() | st.sampled_from([-1.0, 0.0, 1e3, 1e6]))
    told = replace(reply, tensors={**reply.tensors, key: reply.tensors[key] * factor})
    if made["template"].refusal(told, asked) is None:
        weight = reply.tensors["sums/weight/weight"]
        assert torch.equal(told.tensors["sums/weight/weight"], weight)
        delta = {name: leaf for name, leaf in told.tensors.items() if name.startswith("sums/delta/")}
        limit = 100 * max(1.0, float(tree_norm(made["model"]))) * max(1.0, float(weight))
        assert float(tree_norm(delta)) <= limit


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_changed_measures(honest, data):
    """Whatever is admitted gives an accuracy from 0 to 100 and a loss that is not below zero."""
    made, _, _, _ = honest
    numbers = st.floats() | st.integers(-3, 12).map(float)
    tensors = {
        f"sums/accuracy/{leaf}": torch.tensor(data.draw(numbers), dtype=torch.float64)
        for leaf in ("count", "correct", "loss")
    }
    asked = {"client": 0, "round": 1, "kind": "measure"}
    told = {"totals": {}, "steps": {}, "bytes_up": 0, "seconds": 0.0, "is_first": None}
    sent = {"sums": ["accuracy"], "every": [], "first": []}
    reply = Reply("1", 7, {**asked, **told, "sent": sent}, tensors)
    if made["measures"].refusal(reply, asked) is None:
        count, correct, loss = (float(leaf) for leaf in tensors.values())
        assert 0 <= correct <= count <= 1e9
        assert count >= 1
        assert count == int(count)
        assert not loss < 0


DIGEST = f"{'ab' * 8}-{'cd' * 32}"
LOOK = {
    "test_samples": 5,
    "salted_digest": DIGEST,
    "input_shape": [1, 8, 8],
    "scaling": [255.0, [0.5], [2]],
    "dtype": "uint8",
    "given_shape": [8, 8],
}
GREETING = {"num_classes": 3, "revisions": {"model mlp": 2}}
HELLO = {str(k): {"counts": [3, 0, 4], **LOOK, **own_protocol(), "revisions": {"model mlp": 2}} for k in range(2)}
HELD = ClientDescription((3, 0, 4), (1, 8, 8), (255.0, (0.5,), (2.0,)), "uint8", (8, 8), 5, DIGEST)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_changed_greetings(data):
    facts = {"clients": HELLO}
    assert read_descriptions(facts, 2, GREETING) == {0: HELD, 1: HELD}
    path = data.draw(st.sampled_from([each for each in places(facts) if each]))
    try:
        found = read_descriptions(changed(facts, path, data.draw(PLAIN)), 2, GREETING)
    except InvalidDescription:
        return
    for holding in found.values():
        assert len(holding.counts) == 3
        assert all(type(each) is int and 0 <= each <= 2**40 for each in holding.counts)
        assert all(type(each) is int and each > 0 for each in holding.input_shape)
        unit, mean, std = holding.scaling
        assert all(type(each) is float and abs(each) < 1e30 for each in (unit, *mean, *std))
        assert min(unit, *std) > 0
        assert np.zeros(1, dtype=holding.dtype).dtype.kind in "biuf"
        assert holding.given_shape in ((), (8, 8), (8, 8, 1))
        assert 0 <= holding.test_samples <= 2**40
        assert len(holding.salted_digest) == 81


@pytest.mark.parametrize(
    ("client", "told", "reason"),
    [
        ("2", {}, "client '2'; the run has clients 0 to 1"),
        ("-1", {}, "client '-1'"),
        ("01", {}, "client '01'"),
        ("1" * 5000, {}, "client '111"),
        ("x", {}, "client 'x'"),
        ("0", {"counts": [1, 2]}, "2 classes; the run has 3"),
        ("0", {"counts": [1, -2, 3]}, "holds [1, -2, 3]"),
        ("0", {"counts": [1, 2, 2**41]}, "samples per class"),
        ("0", {"counts": [1, 2, True]}, "samples per class"),
        ("0", {"counts": [1, 2, 3.0]}, "samples per class"),
        ("0", {"counts": "123"}, "holds '123'"),
        ("0", {"counts": []}, "samples per class"),
        ("0", {"input_shape": [0, 8]}, "shape [0, 8]"),
        ("0", {"input_shape": [1] * 9}, "shape [1, 1, 1, …]"),
        ("0", {"input_shape": None}, "shape None"),
        ("0", {"scaling": None}, "scaled by None"),
        ("0", {"scaling": [0, [0.0], [1.0]]}, "expected unit, mean and std"),
        ("0", {"scaling": [10**400, [0.0], [1.0]]}, "expected unit, mean and std"),
        ("0", {"scaling": [1.0, [0.0, 0.0], [1.0]]}, "expected unit, mean and std"),
        ("0", {"scaling": [1.0, [float("nan")], [1.0]]}, "expected unit, mean and std"),
        ("0", {"dtype": "object"}, "type 'object'"),
        ("0", {"dtype": ["uint8"]}, "type ['uint8']"),
        ("0", {"given_shape": [8, 1, 8]}, "given as [8, 1, 8]"),
        ("0", {"given_shape": None}, "given as None"),
        ("0", {"test_samples": -1}, "has -1 test samples"),
        ("0", {"test_samples": 5.0}, "has 5.0 test samples"),
        ("0", {"test_samples": None}, "has None test samples"),
        ("0", {"salted_digest": DIGEST.upper()}, "expected the salted digest of its samples"),
        ("0", {"salted_digest": "x" * 10**6}, "expected the salted digest of its samples"),
        ("0", {"salted_digest": None}, "client 0 says None; expected the salted digest"),
        (
            "0",
            {"protocol": 2, "version": "9.0"},
            "speaks protocol 2 (fedblade '9.0'), the coordinator protocol 1",
        ),
        ("0", {"protocol": True}, "it speaks protocol True"),
        (
            "0",
            {"revisions": {"model mlp": 1}},
            "has revision 1 of model mlp, the coordinator's has 2,",
        ),
        ("0", {"revisions": None}, "has revision None of model mlp"),
    ],
)
def test_greetings_that_cannot_be(client, told, reason):
    with pytest.raises(InvalidDescription) as refused:
        read_descriptions({"clients": {client: {**HELLO["0"], **told}}}, 2, GREETING)
    assert reason in str(refused.value)
