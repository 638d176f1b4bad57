"""Numbers of nodes are bounded by what was declared, by what clients hold and by the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.cohort import Cohort
from fedblade.core.errors import RunFailed
from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import Planner
from fedblade.core.state import MemoryStore
from fedblade.core.streams import Streams
from fedblade.core.tree import tree_norm
from fedblade.engines.nodes import RoundRules
from fedblade.engines.nodes._templates import Templates, expected_work
from fedblade.engines.sequential import SequentialEngine
from fedblade.flower._node import Node
from support.node_runs import QUICK, Far, alone, config_of, digest

EVERYONE = {"clients_per_round": 5, "evaluation.metrics": []}
WARDS = 3
APART = QUICK.model_copy(update={"data": "nodes", "num_classes": 10})


def changed(kind, change, client=None):
    """Changes the replies of one kind, of one client or of all."""

    def tamper(request, reply):
        mine = request.kind == kind and client in (None, request.facts["client"])
        return [change(reply)] if mine else [reply]

    return tamper


def tensors(part, change):
    """Changes the tensors whose name has this part."""
    return lambda reply: replace(
        reply, tensors={name: change(leaf) if part in name else leaf for name, leaf in reply.tensors.items()}
    )


def leaving_out(*kinds):
    """Sends no sums of some kinds, and says so."""

    def change(reply):
        sent = {kind: [] if kind in kinds else names for kind, names in reply.facts["sent"].items()}
        left = {name: leaf for name, leaf in reply.tensors.items() if name.partition("/")[0] not in kinds}
        return replace(reply, tensors=left, facts={**reply.facts, "sent": sent})

    return change


class Shards:
    """One client with so many samples."""

    def __init__(self, samples):
        self._samples = samples

    def indices(self, client, round_index):
        return np.arange(self._samples)

    def counts(self, client, round_index):
        return np.array([self._samples, 0])

    def removed(self, client, round_index):
        return None


PHASES = st.builds(
    PhasePlan,
    epochs=st.none() | st.integers(0, 3),
    steps=st.none() | st.integers(1, 6),
    paired=st.booleans(),
    track=st.sampled_from([None, "own"]),
).filter(lambda phase: phase.epochs is not None or phase.steps is not None)


@given(
    samples=st.integers(0, 20),
    batch_size=st.integers(1, 6),
    last_batch=st.sampled_from(["keep", "drop", "wrap"]),
    weighting=st.sampled_from(["samples", "uniform", "batches"]),
    skip=st.booleans(),
    phases=st.lists(PHASES, min_size=1, max_size=3).map(tuple),
)
@settings(max_examples=300, deadline=None)
def test_what_is_due_is_what_would_be_planned(samples, batch_size, last_batch, weighting, skip, phases):
    shards = Shards(samples)
    planner = Planner(
        Streams(0), shards, phases, batch_size, last_batch, weighting, 7.0, skip, 0, False, torch.device("cpu")
    )
    task, asked = planner.task(2, 0), expected_work(Cohort(planner, 2, (0,)), 0)
    assert (asked.steps, asked.skipped, asked.weight) == (task.num_steps, task.skipped_singletons, task.weight)
    assert asked.counts.tolist() == [samples, 0]


def test_what_is_due_of_a_client_with_endless_samples_is_told_at_once():
    planner = Planner(
        Streams(0), Shards(2**40), (PhasePlan(5),), 32, "keep", "samples", 1.0, True, 0, False, torch.device("cpu")
    )
    assert expected_work(Cohort(planner, 0, (0,)), 0).steps == 5 * 2**35


def ward_files(folder):
    """Test samples of three wards of 10, 20 and 30 samples."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in range(WARDS):
        own, measured = 20 + k, 10 * (k + 1)
        np.savez(
            folder / f"{k}.npz",
            x_train=rng.random((own, 1, 8, 8)).astype(np.float32),
            y_train=np.arange(own) % 10,
            x_test=rng.random((measured, 1, 8, 8)).astype(np.float32),
            y_test=np.arange(measured) % 10,
        )
    return [str(folder / f"{k}.npz") for k in range(WARDS)]


def measured_run(folder, change, metrics=()):
    """A run whose first node changes what it has measured."""
    config = config_of(
        "fedavg",
        **{"num_clients": WARDS, "clients_per_round": WARDS, "rounds": 1, "evaluation.metrics": list(metrics)},
        **{"evaluation.every": 1},
    )
    there = {50 + k: Node((k,), file, folder / f"n{k}", "cpu") for k, file in enumerate(ward_files(folder / "data"))}
    run = Far(config, folder, APART, tamper=changed("measure", change, 0), there=there)
    return run, run.trained().history[0]


MEASURES = {
    "more right than there are": (
        tensors("/correct", lambda t: t * 0 + 11),
        "the report counts 11 of 10 samples as right",
    ),
    "less right than none": (tensors("/correct", lambda t: t * 0 - 1), "-1 of 10 samples"),
    "half a sample right": (tensors("/correct", lambda t: t * 0 + 0.5), "0.5 of 10 samples"),
    "everything turned": (tensors("", lambda t: -t), "not a whole number of samples"),
    "no sample": (tensors("", torch.zeros_like), "the reported number of samples is below 1"),
    "half a sample": (tensors("/count", lambda t: t + 0.5), "not a whole number of samples"),
    "endless samples": (
        tensors("/count", lambda t: t * 0 + 1e10),
        "not a whole number of samples from 0 to 1000000000",
    ),
    "endless numbers": (tensors("", lambda t: t * 0 + 1e308), "reaches 1e+308; the largest allowed is 1e+30"),
    "an endless loss": (tensors("/loss", lambda t: t * 0 + 1e308), "the largest allowed is 1e+30"),
    "a loss that no model has": (tensors("/loss", lambda t: t * 0 + 9e29), "the largest believed is 1e+09"),
    "a loss below zero": (tensors("/loss", lambda t: -t), "below zero"),
    "nothing": (leaving_out("sums"), "it sends [] as sums; expected ['accuracy']"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_that_cannot_be_is_refused(name, tmp_path):
    change, reason = MEASURES[name]
    run, row = measured_run(tmp_path, change)
    (event,) = run.refused()
    assert (event["client"], event["node"], event["kind"]) == (0, "50", "measure")
    assert reason in event["reason"]
    # The 50 samples of the others.
    assert 0 <= row["test_accuracy"] <= 100
    assert row["test_accuracy"] / 2 == pytest.approx(round(row["test_accuracy"] / 2), abs=1e-9)
    assert 0 < row["test_loss"] < 100


def test_other_measures_are_bounded_too(tmp_path):
    metrics = ["calibration", "classes"]
    run, row = measured_run(tmp_path / "a", lambda reply: reply, metrics)
    assert run.events == []
    assert 0 <= row["ece"] <= 1
    for number, (part, value, reason) in enumerate(
        [
            ("calibration/confidence", 1e31, "the largest allowed"),
            ("calibration/count", -1.0, "not a whole number of samples"),
        ]
    ):
        run, row = measured_run(tmp_path / str(number), tensors(part, lambda t, v=value: t * 0 + v), metrics)
        (event,) = run.refused()
        assert reason in event["reason"]
        assert 0 <= row["ece"] <= 1


def test_a_cohort_of_one_without_weight_is_refused_and_not_divided_by(tmp_path):
    config = config_of("fedavg", rounds=1, **{"clients_per_round": 1, "evaluation.metrics": []})
    run = Far(config, tmp_path, tamper=changed("train", tensors("weight/weight", torch.zeros_like)))
    with pytest.raises(RunFailed, match=r"0 of 1 clients gave a usable reply.*flower.quorum.*refused: client 1 "):
        run.trained()
    assert "is 0.0; the client's samples give" in run.refused()[0]["reason"]


@pytest.mark.parametrize("weighting", ["samples", "uniform", "batches"])
def test_weights_follow_from_the_clients_samples(weighting, tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE, **{"federation.weighting": weighting})
    run = Far(config, tmp_path / "honest")
    assert digest(run.trained()) == digest(alone(config))
    assert run.events == []
    run = Far(config, tmp_path / "bad", tamper=changed("train", tensors("weight/weight", lambda t: t * 2), 4))
    assert digest(run.trained()) == digest(alone(config, {0: [4]}))
    assert "the client's samples give" in run.refused()[0]["reason"]


@pytest.mark.parametrize(
    ("weight", "reason"), [(0.0, "expected above 0 and at most"), (1e5, "the largest allowed is 1")]
)
def test_a_methods_own_weights_have_a_bound(weight, reason, tmp_path):
    config = config_of("perfedavg", rounds=1, **EVERYONE)
    run = Far(config, tmp_path, tamper=changed("train", tensors("weight/weight", lambda t: t * 0 + weight), 4))
    assert digest(run.trained()) == digest(alone(config, {0: [4]}))
    assert reason in run.refused()[0]["reason"]


OWN = """
from dataclasses import dataclass, replace
from typing import ClassVar
import torch
from fedblade import payloads
from fedblade.core.sums import Sum
from fedblade.core.terms import Term, TermValue
from fedblade.core.tree import tree_map
from fedblade.methods.fedavg import fedavg


@dataclass(frozen=True, kw_only=True)
class Late(Term):
    name: ClassVar[str] = "late"
    by_round: ClassVar[bool] = True

    def __call__(self, view):
        value = 1e-3 * view.features.square().mean()
        return TermValue(value, {} if view.round < 1 else {"count_late": torch.ones(())})


def late():
    usual = fedavg()
    return replace(usual, losses=(*usual.losses, Late()))


def by_samples():
    size = lambda view: float(view.counts.sum())
    delta = Sum("delta", lambda v: tree_map(lambda x: x * size(v) / v.weight, payloads.delta.of(v)), bound=1e6)
    weight = Sum("weight", lambda v: {"weight": torch.tensor(size(v), dtype=torch.float64)}, bound=1e6)
    usual = fedavg()
    return replace(usual, sums=tuple({"delta": delta, "weight": weight}.get(each.name, each) for each in usual.sums))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["late", "by_samples"])
def test_methods_of_the_users_may_weigh_by_samples_and_log_by_round(name, tmp_path):
    """Updates that are multiplied by hundreds are no longer than their weight allows."""
    (tmp_path / "mine.py").write_text(OWN)
    hard = {"epochs": 10, "optimizer.lr": 0.1, "batch_size": 16} if name == "by_samples" else {}
    config = config_of(f"{tmp_path / 'mine.py'}:{name}", **EVERYONE | hard)
    run = Far(config, tmp_path)
    assert digest(run.trained()) == digest(alone(config))
    assert run.events == []


@pytest.mark.parametrize(("method", "name"), [("fedavg", "delta"), ("fednova", "normalised"), ("scaffold", "c")])
def test_what_is_shaped_as_the_model_is_no_longer_than_it_may_be(method, name, tmp_path):
    config = config_of(method, rounds=1, **EVERYONE)
    whole = alone(config, {0: [4]})
    for number, (length, refused) in enumerate(((90.0, False), (130.0, True))):
        model = {}

        def stretch(request, reply, length=length, model=model):
            if request.kind != "train" or request.facts["client"] != 4:
                return [reply]
            model["norm"] = tree_norm({key: leaf for key, leaf in request.tensors.items() if key.startswith("params/")})
            scale = length * float(model["norm"]) * max(1.0, float(reply.tensors["sums/weight/weight"]))
            sent = {key: leaf for key, leaf in reply.tensors.items() if key.startswith(f"sums/{name}/")}
            longer = scale / float(tree_norm(sent))
            return [tensors(f"sums/{name}/", lambda leaf: leaf * longer)(reply)]

        run = Far(config, tmp_path / str(number), tamper=stretch)
        far = run.trained()
        assert float(model["norm"]) > 1
        assert [f"'sums/{name}' has length" in event["reason"] for event in run.refused()] == [True] * refused
        assert (digest(far) == digest(whole)) == refused


def test_how_long_updates_may_be_is_a_setting(tmp_path):
    seen = []

    def tamper(request, reply):
        seen.append((request, reply))
        return [reply]

    setup = Far(config_of("fedavg", rounds=1, **EVERYONE), tmp_path, tamper=tamper).setup()
    cohort = Cohort(setup.planner, 0, tuple(range(5)))
    setup.engine.train(setup.start, cohort, MemoryStore(), 0.1, lambda _: None)
    request, reply = next(each for each in seen if each[0].kind == "train")
    asked = {key: request.facts[key] for key in ("client", "round", "is_first")} | {"kind": "train"}

    def refusal(max_norm):
        templates = Templates(
            setup.problem, SequentialEngine(setup.problem), RoundRules(max_norm=max_norm, table="flower")
        )
        return templates.of_training(setup.start, cohort, setup.method.sums, None, 0.1).refusal(reply, asked)

    assert refusal(1.0) is None
    assert "flower.max_norm" in refusal(1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda counts: counts + 1, "counts samples that the client does not hold"),
        (lambda counts: -counts, "counts samples that the client does not hold"),
        (torch.ones_like, "for a class of which the client holds no sample"),
    ],
)
def test_class_sums_are_of_the_classes_that_a_client_holds(change, reason, tmp_path):
    config = config_of("fedproto", rounds=1, **EVERYONE, **{"partition.alpha": 0.05})

    def tamper(request, reply):
        if request.kind != "train" or request.facts["client"] != 4:
            return [reply]
        counts = reply.tensors["sums/prototypes/count"]
        assert bool((counts == 0).any())
        told = torch.where(counts > 0, change(counts), 0.0) if change is not torch.ones_like else change(counts)
        return [replace(reply, tensors={**reply.tensors, "sums/prototypes/count": told})]

    run = Far(config, tmp_path, tamper=tamper)
    assert digest(run.trained()) == digest(alone(config, {0: [4]}))
    (event,) = run.refused()
    assert reason in event["reason"]


@pytest.mark.parametrize(
    ("metrics", "kinds", "client"),
    [([], ["sums"], 4), (["drift"], ["sums"], 4), (["drift"], ["every"], 4), (["local_spectrum"], ["first"], 0)],
)
def test_a_reply_without_its_sums_is_no_answer(metrics, kinds, client, tmp_path):
    config = config_of("fedavg", rounds=1, **EVERYONE | {"evaluation.metrics": metrics, "evaluation.every": 1})
    run = Far(config, tmp_path, tamper=changed("train", leaving_out(*kinds), client))
    row = run.trained().history[0]
    (event,) = run.refused()
    assert event["client"] == client
    assert f"it sends [] as {kinds[0]}; expected ['" in event["reason"]
    assert (row["count_refused_replies"], row["count_missing_clients"]) == (1, 1)


@pytest.mark.parametrize(("method", "kind"), [("fedavg", "train"), ("fedfm", "collect"), ("ccvr", "collect")])
def test_empty_replies_do_not_make_a_quorum(method, kind, tmp_path):
    config = config_of(method, rounds=1, **EVERYONE)
    run = Far(config, tmp_path, tamper=changed(kind, leaving_out("sums")))
    with pytest.raises(
        RunFailed,
        match=r"0 of 5 clients gave a usable reply .* clients: refused: 5 clients \(client 0: it sends",
    ):
        run.trained()
    assert all("it sends [] as sums; expected ['" in event["reason"] for event in run.refused())


def test_a_run_in_which_no_node_makes_a_step_fails(tmp_path):
    config = config_of("fedavg", rounds=2, **EVERYONE, **{"local.last_batch": "drop", "batch_size": 5000})
    with pytest.raises(RunFailed, match="no client made a step in any of the 2 rounds"):
        Far(config, tmp_path).trained()


def test_clients_without_a_step_send_nothing_and_answer_all_the_same(tmp_path):
    changes = EVERYONE | {"local.last_batch": "drop", "batch_size": 300, "evaluation.metrics": ["drift"]}
    config = config_of("fedavg", rounds=1, **changes)
    near, run = alone(config), Far(config, tmp_path / "honest")
    far = run.trained()
    assert 0 < far.history[0]["count_idle_clients"] < 5
    assert run.events == []
    assert digest(far) == digest(near)
    sizes = run.setup().clients.train.sizes()
    idle, busy = int(sizes.argmin()), int(sizes.argmax())
    taken = {}

    def tamper(request, reply):
        if request.kind == "train" and request.facts["client"] == busy:
            taken["reply"] = reply
        if request.kind == "train" and request.facts["client"] == idle:
            sent = {**taken["reply"].facts["sent"], "first": []}
            return [replace(reply, tensors=taken["reply"].tensors, facts={**reply.facts, "sent": sent})]
        return [reply]

    # The one that trains answers first.
    run = Far(
        config, tmp_path / "bad", tamper=tamper, order=lambda ids: sorted(ids, key=lambda id_: -sizes[_of(run, id_)])
    )
    assert digest(run.trained()) == digest(near)
    (event,) = run.refused()
    assert event["client"] == idle
    assert "expected [] of a client with 0 steps" in event["reason"]


def _of(run, id_):
    """The client that a request asks, 0 where it greets a node."""
    return run.transport.asked[int(id_) - 1].facts.get("client", 0)
