"""FedETF's three-stage fine-tuning."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.heads import _etf, class_vectors
from fedblade.methods.fedblade import fedblade
from fedblade.methods.fedetf import fedetf
from fedblade.personal import EtfFineTuning
from fedblade.runs import Driver, RunListener, plan_phases, tuning_stages
from support.one_client import personal_model
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    train,
)

SHORT = {"ft.stage_epochs": 1, "ft.iterations": 2}
PERS_ETF = {"evaluation.protocol": "pers_etf"}
CLIENT = 2


def adapted(setup, phases, state=None, first_epoch=0):
    """A client's state after some phases, from the initial global model or the state given."""
    task = setup.planner.task(2, CLIENT, plan_phases(setup.config, phases), first_epoch)
    ((client, new),) = setup.engine.adapt(setup.start, [task], {CLIENT: state}.get, 0.05, phases)
    assert client == CLIENT
    return new


def own(setup, state):
    params, buffers, fixed = personal_model(setup.problem, setup.start, state)
    return params | buffers | fixed


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name, leaf in after.items() if not torch.equal(leaf, before[name])}


def names(setup, *groups):
    everything = setup.start.params | setup.start.buffers | setup.start.fixed
    return {name for name in everything if name.partition(".")[0] in groups}


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(("method", "variant"), [("fedetf", "paper"), ("fedetf", "release"), ("fedblade", "paper")])
def test_each_part_changes_the_tensors_it_names_and_no_other(method, variant, norm):
    """One after the other: features, classifier, projector, and the classifier of the second turn."""
    knobs = {} if method == "fedblade" else {"ft.variant": variant, **SHORT}
    setup = build(method, weight_decay=0.1, **{"model.norm": norm}, **knobs)
    (features,), (classifier, projector), *_ = setup.method.own.tuning["pers_etf"]
    scale = ("scale",) if variant == "paper" else ()
    first = ("body", "scale") if variant == "paper" else ("body", "projector", "scale")
    state, before = None, own(setup, None)
    for phase, groups in (
        (features, first),
        (classifier, ("etf", *scale)),
        (projector, ("projector", *scale)),
        (classifier, ("etf", *scale)),
    ):
        state = adapted(setup, (phase,), state)
        after = own(setup, state)
        # the release's model stays in training mode, also where its body rests
        statistics = set(setup.start.buffers) if variant == "release" else set()
        assert changed(before, after) == names(setup, *groups) | statistics
        before = after


@pytest.mark.parametrize("variant", ["paper", "release"])
def test_the_server_keeps_its_frame(variant):
    ran = train("fedetf", **SHORT, **PERS_ETF, **{"ft.variant": variant})
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    untuned = train("fedetf")
    assert_same_bits(ran.state.params, untuned.state.params)
    etf = ran.state.fixed["etf"]
    expected = torch.full((NUM_CLASSES, NUM_CLASSES), -1 / (NUM_CLASSES - 1), dtype=etf.dtype).fill_diagonal_(1)
    torch.testing.assert_close(etf.T @ etf, expected, rtol=0, atol=2e-6)


def test_the_freed_frame_belongs_to_the_client():
    setup = build("fedetf", **SHORT)
    _, turn, _ = setup.method.own.tuning["pers_etf"]
    before = setup.start.fixed["etf"].clone()
    state = adapted(setup, turn)
    assert torch.equal(setup.start.fixed["etf"], before)
    _, _, fixed = personal_model(setup.problem, setup.start, state)
    assert not torch.equal(fixed["etf"], before)
    assert (fixed["etf"].norm(dim=0) - 1).abs().max() > 1e-3


def plain_stage(setup, model, buffers, trains, phase_batches, sgd, balanced=False, training=False):
    """SGD on some of the tensors, with plain or balanced cross-entropy of s·Vᵀu."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    counts = torch.from_numpy(setup.clients.train.counts(CLIENT, 2)).double()
    prior = counts.clamp(min=1).log() if balanced else torch.zeros(NUM_CLASSES)

    def loss(params, indices):
        w = model | params
        z = plain.features(plain.MLP_BATCH_NORM, w, buffers, x[indices], training=training)
        u = plain.unit(z @ w["projector.weight"].T + w["projector.bias"])
        logits = w["scale"] * (u @ w["etf"]) + prior
        return -torch.log_softmax(logits, 1)[torch.arange(len(indices)), y[indices]].mean()

    chosen = {n: model[n] for n in trains}
    return model | plain.local_sgd(loss, chosen, [b.indices for b in phase_batches], *sgd)


@pytest.mark.parametrize("variant", ["paper", "release"])
def test_all_stages_agree_with_a_plain_version(variant):
    setup = build("fedetf", **BATCH_NORM, **SHORT, **{"ft.variant": variant})
    scale = ["scale"] if variant == "paper" else []
    body = [n for n in setup.start.params if n.startswith("body.")]
    projector = ["projector.weight", "projector.bias"]
    model = setup.start.params | setup.start.fixed
    buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
    state, first_epoch = None, 0
    for number, phases in enumerate(setup.method.own.tuning["pers_etf"]):
        plans = plan_phases(setup.config, phases)
        batches = setup.planner.task(2, CLIENT, plans, first_epoch).phases
        if number == 0:
            groups = body + ["scale"] + (projector if variant == "release" else [])
            sgd, balanced = (0.05, 0.9, 1e-3), variant == "release"
            model = plain_stage(setup, model, buffers, groups, batches[0], sgd, balanced, training=True)
        else:
            training = variant == "release"
            model = plain_stage(setup, model, buffers, ["etf", *scale], batches[0], (0.1, 0.0, 0.0), training=training)
            model = plain_stage(
                setup, model, buffers, [*projector, *scale], batches[1], (0.05, 0.9, 5e-4), training=training
            )
        state = adapted(setup, phases, state, first_epoch)
        first_epoch += sum(plan.epochs for plan in plans)
        assert_close(own(setup, state), model | buffers, 1e-11)
    assert number == 2


@pytest.mark.parametrize("projector", [True, False])
def test_no_epochs_leave_the_model_unchanged(projector):
    setup = build("fedetf", projector=projector, **{"ft.stage_epochs": 0, "ft.iterations": 2}, **BATCH_NORM)
    state = None
    for phases in setup.method.own.tuning["pers_etf"]:
        state = adapted(setup, phases, state)
        assert_same_bits(own(setup, state), own(setup, None))


def test_without_turns_only_the_features_are_tuned():
    (features,) = fedetf(ft=EtfFineTuning(iterations=0)).own.tuning["pers_etf"]
    assert [phase.trains for phase in features] == [("body", "scale")]


def test_without_a_projector_its_part_is_left_out():
    setup = build("fedetf", projector=False, **SHORT)
    first, *turns = setup.method.own.tuning["pers_etf"]
    assert [len(turn) for turn in turns] == [1, 1]
    state = adapted(setup, first)
    assert changed(own(setup, state), own(setup, adapted(setup, turns[0], state))) == {"etf", "scale"}


def test_a_fixed_scale_rests_throughout():
    setup = build("fedetf", **SHORT, **{"scale.learnable": False})
    state = None
    for phases in setup.method.own.tuning["pers_etf"]:
        state = adapted(setup, phases, state)
    assert changed(own(setup, None), own(setup, state)) == names(setup, "body", "projector", "etf")


def test_the_defaults_are_the_cards():
    first, *turns = fedetf().own.tuning["pers_etf"]
    assert len(turns) == 20
    assert {phase.epochs for phases in (first, *turns) for phase in phases} == {3}
    classifier, projector = turns[0]
    assert (classifier.sgd.lr, classifier.sgd.momentum, classifier.sgd.weight_decay) == (0.1, 0.0, 0.0)
    assert (projector.sgd.lr, projector.sgd.momentum, projector.sgd.weight_decay) == (0.05, 0.9, 5e-4)
    assert all(turn == turns[0] for turn in turns)
    assert fedblade().own.tuning["pers_etf"] == fedetf().own.tuning["pers_etf"]


@pytest.mark.parametrize("method", ["fedetf", "fedetf-ft", "fedetf+feddecorr"])
def test_the_protocol_takes_the_stages_and_fine_tuning_does_not(method):
    setup = build(method)
    stages = setup.method.own.tuning["pers_etf"]
    assert tuning_stages(setup.method, "pers_etf") == stages
    assert tuning_stages(setup.method, "ft") == ((setup.method.phases,) if method == "fedetf-ft" else ())
    assert tuning_stages(setup.method, "last5") == ((setup.method.phases,) if method == "fedetf-ft" else None)


def test_the_curve_has_a_value_for_each_stage():
    """Fig. 6b: the accuracy after the features, and after each turn."""
    ran = train("fedetf", **PERS_ETF, **{"ft.stage_epochs": 1, "ft.iterations": 3}, **BATCH_NORM)
    setup, stages = ran.setup, ran.setup.method.own.tuning["pers_etf"]
    assert [row["client"] for row in ran.driver.clients] == [0, 1, 2, 3]
    assert all(len(row["curve"]) == 4 for row in ran.driver.clients)
    assert all(row["accuracy"] == row["curve"][-1] for row in ran.driver.clients)
    state, first_epoch, curve = None, 0, []
    mine = setup.clients.part(CLIENT)
    for phases in stages:
        plans = plan_phases(setup.config, phases)
        task = setup.planner.task(2, CLIENT, plans, first_epoch)
        ((_, state),) = setup.engine.adapt(ran.state, [task], {CLIENT: state}.get, 0.05, phases)
        first_epoch += sum(plan.epochs for plan in plans)
        params, buffers, fixed = personal_model(setup.problem, ran.state, state)
        inputs, labels = setup.test.batch(torch.from_numpy(mine))
        z = plain.features(plain.MLP_BATCH_NORM, params, buffers, inputs, training=False)
        u = plain.unit(z @ params["projector.weight"].T + params["projector.bias"])
        curve.append(100 * ((u @ fixed["etf"]).argmax(1) == labels).double().mean().item())
    assert ran.driver.clients[CLIENT]["curve"] == pytest.approx(curve, abs=1e-10)
    assert len(set(curve)) > 1


def test_the_variants_differ():
    results = []
    for variant in ("paper", "release"):
        setup = build("fedetf", **SHORT, **{"ft.variant": variant})
        results.append(own(setup, adapted(setup, setup.method.own.tuning["pers_etf"][0])))
    assert_different(*results)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"stage_epochs": -1}, "ft.stage_epochs=-1: expected a number from 0 on"),
        ({"iterations": -2}, "ft.iterations=-2"),
        ({"lr_classifier": float("nan")}, "ft.lr_classifier=nan"),
        ({"lr_projector": float("inf")}, "ft.lr_projector=inf"),
        ({"projector_momentum": 1.0}, "ft.projector_momentum=1.0: expected a number from 0 to below 1"),
        ({"projector_weight_decay": -1e-4}, "ft.projector_weight_decay=-0.0001"),
        ({"variant": "paperr"}, "unknown ft.variant 'paperr'.*paper"),
    ],
)
def test_bad_fields_are_refused(knobs, message):
    with pytest.raises(Misconfigured, match=message):
        EtfFineTuning(**knobs)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_class_vectors_along_the_axes_are_freed_as_a_matrix(engine, monkeypatch):
    """The signs of more than 1,000 classes, here of few, give the run of the matrix that they stand for."""
    monkeypatch.setattr(_etf, "MOST_DRAWN", 2)
    setup = build("fedetf", engine=engine, **PERS_ETF, **SHORT, **{"dataset.test_split": "matched"})
    matrix = {**setup.start.fixed, "etf": class_vectors(setup.start.fixed["etf"])}
    ours, theirs = (
        Driver(each, None, RunListener()) for each in (setup, replace(setup, start=setup.start.replace(fixed=matrix)))
    )
    for driver in (ours, theirs):
        driver.run()
    assert_close(ours.state.params, theirs.state.params, 1e-9)
    assert len(ours.clients) == 4
    assert [row["accuracy"] for row in ours.clients] == [row["accuracy"] for row in theirs.clients]
    stages, state, other = setup.method.own.tuning["pers_etf"], None, None
    for phases in stages[:2]:
        state = adapted(setup, phases, state)
        other = adapted(replace(setup, start=setup.start.replace(fixed=matrix)), phases, other)
    assert_close(own(setup, state), own(setup, other), 1e-9)
    assert own(setup, state)["etf"].shape == (NUM_CLASSES, NUM_CLASSES)


def test_a_matrix_of_an_older_version_is_read_where_there_are_signs_now(monkeypatch):
    older = build("fedetf").start
    monkeypatch.setattr(_etf, "MOST_DRAWN", 2)
    now = build("fedetf").start
    restored = now.restored(older.flat(), 3)
    assert torch.equal(restored.fixed["etf"], older.fixed["etf"])
    with pytest.raises(KeyError, match="fixed/etf"):
        older.restored(now.flat(), 3)
