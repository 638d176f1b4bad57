"""FedGELA, FedGE and LA only, their part in the protocol `gapa` and the `-ft` variant."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import support.plain_torch as plain
from fedblade.cards import make_card
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.phase import Phase, Sgd
from fedblade.core.problem import PERSONAL
from fedblade.core.views import StepView
from fedblade.data import as_dataset
from fedblade.losses import adaptation
from fedblade.methods.fedge import fedge
from fedblade.methods.fedgela import fedgela
from fedblade.methods.fedla import fedla
from fedblade.personal import finetuned
from fedblade.runs import plan_phases
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
MATCHED = {"dataset.test_split": "matched"}
Q = {"exp": np.exp, "sqrt": np.sqrt}
# Class vectors of length 100 make the small model chaotic at this federation's rate; length 3 does not.
MILD = {"E_W": 9.0}
UNCLIPPED = {"method.clip": "none"}


def uneven():
    """A data set whose classes are not equally frequent."""
    data = vectors(200, 40)
    keep = np.array([i for i, c in enumerate(data.train.labels) if i % 40 < 40 - 7 * c])
    parts = (data.train.inputs[keep], data.train.labels[keep], data.test.inputs, data.test.labels)
    return as_dataset(parts)


def phi_table(table, kind):
    """Φ [clients, classes] from the counts of all clients, by the definition."""
    sizes = table.sum(1)
    if kind == "none":
        return np.ones_like(table, dtype=float)
    if kind == "identity":
        return np.array([[NUM_CLASSES * table[k, c] / sizes[k] for c in range(NUM_CLASSES)] for k in range(len(table))])
    result = np.zeros(table.shape)
    for c in range(NUM_CLASSES):
        mean = sum(sizes[j] / sizes.sum() * Q[kind](table[j, c] / sizes[j]) for j in range(len(table)))
        for k in range(len(table)):
            result[k, c] = Q[kind](table[k, c] / sizes[k]) / mean
    return result


def scores(params, fixed, z, length, normalize):
    if "projector.weight" in params:
        return params["scale"] * (plain.unit(z @ params["projector.weight"].T) @ fixed["etf"])
    h = plain.unit(z) if normalize else z
    return h @ params["head.weight"].T if "head.weight" in params else length * (h @ fixed["etf"])


def adapted_loss(layers, buffers, x, y, phi, counts, fixed, knobs):
    """Equation 5, its softmax over the classes held or over all."""
    classes = [c for c in range(NUM_CLASSES) if counts[c] > 0 or knobs["classes"] == "all"]

    def loss(params, indices):
        z = plain.features(layers, params, buffers, x[indices], training=True)
        raw = scores(params, fixed, z, knobs["length"], knobs["normalize"])
        own = torch.stack([phi[c] * raw[i, c] for i, c in enumerate(y[indices].tolist())])
        return (torch.logsumexp(torch.stack([phi[c] * raw[:, c] for c in classes], 1), 1) - own).mean()

    return loss


def reference(setup, norm, kind, rounds, length=3.0, normalize=True, classes="existing"):
    """Global model, and the last local model of each client, over some rounds."""
    samples, params, buffers, fixed = setup.problem.samples, setup.start.params, setup.start.buffers, setup.start.fixed
    phi = torch.from_numpy(phi_table(setup.clients.train.table(), kind))
    knobs = {"length": length, "normalize": normalize, "classes": classes}
    kept, lr = {}, setup.config.optimizer.lr
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            own = {n: v.clone() for n, v in buffers.items()}
            loss = adapted_loss(
                LAYERS[norm], own, samples.inputs, samples.labels, phi[client], task.counts, fixed, knobs
            )
            models.append(plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], lr, 0.9, 1e-3))
            statistics.append(own)
            sizes.append(len(task.indices))
            kept[int(client)] = models[-1] | own
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return params, buffers, kept


def check(ran, expected, tolerance=1e-9):
    params, buffers, kept = expected
    assert_close(ran.state.params, params, tolerance)
    assert_close(ran.state.buffers, buffers, tolerance)
    for client, model in kept.items():
        assert_close(ran.driver._store.get(client, ran.state.round)["local"], model, tolerance)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("phi", ["identity", "exp", "sqrt"])
def test_three_rounds_agree_with_the_plain_version(phi, norm):
    ran = train("fedgela", uneven(), phi=phi, rounds=3, clients_per_round=3, **MILD, **{"model.norm": norm})
    check(ran, reference(ran.setup, norm, phi, 3))


@pytest.mark.parametrize(
    ("method", "knobs", "kind", "options"),
    [
        ("fedgela", {"E_W": 1.0, "normalize": False}, "identity", {"length": 1.0, "normalize": False}),
        ("fedgela", {**MILD, "softmax_classes": "all"}, "identity", {"classes": "all"}),
        ("fedgela", {**MILD, "phi": "exp", "softmax_classes": "all"}, "exp", {"classes": "all"}),
        ("fedgela", {"temperature": 0.25, **UNCLIPPED}, "identity", {"length": 4.0}),
        ("fedge", MILD, "none", {}),
        ("fedge", {"E_W": 1.0, "normalize": False, "softmax_classes": "all"}, "none",
         {"length": 1.0, "normalize": False, "classes": "all"}),
        ("fedla", {}, "identity", {}),
        ("fedla", {"phi": "sqrt", "normalize": False}, "sqrt", {"normalize": False}),
    ],
)  # fmt: skip
def test_the_variants_agree_with_the_plain_version(method, knobs, kind, options):
    ran = train(method, lr=0.02, **knobs, **BATCH_NORM)
    check(ran, reference(ran.setup, "batch", kind, 2, **options))


@pytest.mark.parametrize("wrong", ["identity", "exp", "none"])
def test_the_comparison_notices_another_adaptation(wrong):
    ran = train("fedgela", phi="sqrt", **MILD)
    with pytest.raises(AssertionError):
        check(ran, reference(ran.setup, "none", wrong, 2))


@pytest.mark.parametrize(("norm", "phi"), [("none", "identity"), ("batch", "exp")])
def test_the_projected_head_agrees_with_the_plain_version(norm, phi):
    """A projection without bias, a learnable norm, class vectors of as many dimensions as classes, all classes."""
    knobs = {"head": "projected", "phi": phi, "model.norm": norm}
    ran = train("fedgela", rounds=3, **UNCLIPPED, **knobs)
    check(ran, reference(ran.setup, norm, phi, 3, classes="all"))
    start = ran.setup.start
    assert {n for n in start.params if not n.startswith("body.")} == {"projector.weight", "scale"}
    assert start.params["projector.weight"].shape == (NUM_CLASSES, 16)
    assert start.fixed["etf"].shape == (NUM_CLASSES, NUM_CLASSES)
    assert ran.history[-1]["scale"] == ran.state.params["scale"].item() != 1


def even(method, **knobs):
    """A federation in which every client has as many samples of each class."""
    ran = train(method, vectors(160), partition="pathological", classes_per_client=NUM_CLASSES, **knobs)
    assert np.unique(ran.setup.clients.train.table()).size == 1
    return ran


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("classes", ["existing", "all"])
def test_with_even_classes_fedgela_is_fedge_bit_for_bit(normalize, classes):
    """The predictions of the personal models too."""
    knobs = {"normalize": normalize, "softmax_classes": classes, "evaluation.protocol": "gapa", **MATCHED, **BATCH_NORM}
    a, b = even("fedgela", **knobs), even("fedge", **knobs)
    assert_same_run(a, b)
    assert a.driver.clients == b.driver.clients
    assert "personal_accuracy" in a.history[-1]


def test_with_skewed_classes_they_differ():
    assert_different(train("fedgela", **MILD).state.params, train("fedge", **MILD).state.params)


def weighted_phi(setup, kind, reference=None):
    """Σ_k a_k Φ_k over all clients, by data shares."""
    every = [setup.planner.task(0, k) for k in range(4)]
    total = sum(len(task.indices) for task in every)
    return sum(len(task.indices) / total * adaptation(task.counts, kind, reference) for task in every)


def test_in_a_balanced_federation_the_scales_average_to_one():
    setup = build("fedgela")
    assert np.unique(setup.clients.train.table().sum(0)).size == 1
    mean = weighted_phi(setup, "identity")
    torch.testing.assert_close(mean, torch.ones_like(mean), rtol=0, atol=1e-14)


def test_in_an_unbalanced_federation_they_do_not():
    setup = build("fedgela", uneven())
    assert (weighted_phi(setup, "identity") - 1).abs().max() > 0.1


@pytest.mark.parametrize("phi", ["exp", "sqrt"])
def test_shared_scales_always_average_to_one(phi):
    """With the reference as the server holds it, in any federation, whoever is in the cohorts."""
    ran = train("fedgela", uneven(), phi=phi, rounds=1, clients_per_round=1, **MILD)
    reference = ran.state.extra["phi"]["reference"]
    mean = weighted_phi(ran.setup, phi, reference)
    torch.testing.assert_close(mean, torch.ones_like(mean), rtol=0, atol=1e-12)


def test_sharing_happens_once_and_is_counted():
    """Shares travel up before the first round, their mean down in every round; `identity` sends nothing."""
    runs = {phi: train("fedgela", phi=phi, rounds=3, **MILD).history for phi in ("identity", "exp")}
    up = [b["bytes_up"] - a["bytes_up"] for a, b in zip(runs["identity"], runs["exp"], strict=True)]
    assert up == [4 * (NUM_CLASSES + 1) * 8, 0, 0]
    down = [b["bytes_down"] - a["bytes_down"] for a, b in zip(runs["identity"], runs["exp"], strict=True)]
    each = 4 * NUM_CLASSES * 8
    assert down == [each, each, each]


@pytest.mark.parametrize("method", [fedgela(), fedge(), fedla()], ids=["fedgela", "fedge", "fedla"])
def test_without_shared_scales_counts_stay_on_the_client(method):
    assert method.exchanges == ()
    assert {each.name for each in method.sums} == {"delta", "buffers", "counters", "weight"}


@pytest.mark.parametrize("method", ["fedgela", "fedge"])
def test_the_class_vectors_never_change(method):
    ran = train(method, rounds=3, **BATCH_NORM)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)
    assert set(ran.state.fixed) == {"etf"}
    assert all(name.startswith("body.") for name in ran.state.params)


def trained(setup, task, start):
    return local_train(setup.problem, receive(setup.problem, start, task, None, 0.05))[0].params


def turned(setup, missing):
    """The start with other vectors for some classes."""
    etf = setup.start.fixed["etf"].clone()
    etf[:, missing] = torch.randn(len(etf), int(missing.sum()), dtype=etf.dtype, generator=torch.manual_seed(1))
    return setup.start.replace(fixed={"etf": etf})


@pytest.mark.parametrize("phi", ["identity", "exp", "sqrt"])
def test_missing_classes_have_no_influence(phi):
    setup = train("fedgela", phi=phi, rounds=1, **MILD).setup
    server = {"phi": {"reference": torch.full((NUM_CLASSES,), 1.1, dtype=torch.float64)}} if phi != "identity" else {}
    start = setup.start.replace(extra=server)
    task = tasks(setup)[1]
    missing = task.counts == 0
    assert missing.any()
    moved = turned(setup, missing).replace(extra=server)
    assert_same_bits(trained(setup, task, start), trained(setup, task, moved))
    held = turned(setup, ~missing).replace(extra=server)
    assert_different(trained(setup, task, start), trained(setup, task, held))


def test_missing_classes_push_in_a_softmax_over_all():
    runs = [train("fedgela", softmax_classes=classes, **MILD).state.params for classes in ("existing", "all")]
    assert_different(*runs)


def test_a_client_of_one_class_learns_nothing_and_is_counted():
    """2.22, edge: loss 0 and zero gradient, so that without decay nothing moves."""
    ran = train("fedgela", partition="pathological", num_clients=5, clients_per_round=5, classes_per_client=1,
                weight_decay=0.0, **MILD)  # fmt: skip
    assert_same_bits(ran.state.params, ran.setup.start.params)
    steps = sum(task.num_steps for task in tasks(ran.setup))
    for row in ran.history:
        assert row["loss_supervised"] == 0
        assert row["count_single_class_steps"] == steps
    assert all(row["count_single_class_steps"] == 0 for row in train("fedgela", **MILD).history)


def test_a_temperature_replaces_the_length_of_the_class_vectors():
    assert_same_run(train("fedgela", temperature=0.25), train("fedgela", E_W=16.0))


def test_only_fedla_trains_a_classifier_and_it_has_no_bias():
    ran = train("fedla")
    assert {name for name in ran.state.params if name.startswith("head.")} == {"head.weight"}
    assert ran.state.fixed == {}
    assert not torch.equal(ran.state.params["head.weight"], ran.setup.start.params["head.weight"])


def logits(ran, model, indices, normalize=True):
    """Class scores of test samples, with class vectors of length 1."""
    buffers = {n: v for n, v in model.items() if "running" in n}
    z = plain.features(LAYERS["batch"], model, buffers, ran.setup.test.inputs[indices], training=False)
    return scores(model, ran.state.fixed, z, 1.0, normalize)


@pytest.mark.parametrize("method", ["fedgela", "fedge", "fedla"])
def test_the_global_prediction_has_no_adaptation(method):
    ran = train(method, **BATCH_NORM)
    found = logits(ran, ran.state.params | ran.state.buffers, torch.arange(40)).argmax(1)
    expected = 100 * (found == ran.setup.test.labels).double().mean().item()
    assert ran.history[-1]["test_accuracy"] == pytest.approx(expected, abs=1e-10)


def own_accuracy(ran, client, model, kind):
    """Φ-scaled prediction among the classes held, sample by sample."""
    part = torch.from_numpy(ran.setup.clients.part(client))
    table = ran.setup.clients.train.table()
    phi, held = phi_table(table, kind)[client], np.flatnonzero(table[client])
    hits = 0
    for row, label in zip(logits(ran, model, part), ran.setup.test.labels[part].tolist(), strict=True):
        hits += label == max(held, key=lambda c, row=row: phi[c] * row[c].item())
    return 100 * hits / len(part)


CASES = [("fedgela", "identity", {}), ("fedgela", "exp", {"phi": "exp"}), ("fedge", "none", {}),
         ("fedla", "identity", {})]  # fmt: skip


@pytest.mark.parametrize(("method", "kind", "knobs"), CASES)
def test_own_models_are_those_after_local_training(method, kind, knobs):
    """Protocol `gapa`: recorded in every round without tuning, with the client's own classes and scales."""
    settings = {"clients_per_round": 3, "evaluation.protocol": "gapa", **BATCH_NORM, **MATCHED}
    ran = train(method, vectors(150, 100), **knobs, **settings)
    everything = ran.state.params | ran.state.buffers
    states = {k: ran.driver._store.get(k, 2) for k in range(4)}
    values = [own_accuracy(ran, k, (states[k] or {}).get("local", everything), kind) for k in range(4)]
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert ran.history[-1]["personal_accuracy"] == pytest.approx(np.mean(values), abs=1e-10)
    assert "personal_accuracy" in ran.history[0]
    assert len(set(values)) > 1


@pytest.mark.parametrize("method", [fedgela(), fedgela(phi="exp"), fedge()], ids=["identity", "exp", "fedge"])
def test_own_predictions_of_many_clients_at_once(method):
    """Engines add a client axis; a class that a client lacks can never win."""
    setup = build(method)
    counts = torch.stack([task.counts for task in tasks(setup)])
    features = torch.randn(4, 3, 16, dtype=torch.float64, generator=torch.manual_seed(0))
    server = {"phi": {"reference": torch.linspace(1.0, 1.3, NUM_CLASSES, dtype=torch.float64)}}
    head, fixed = setup.problem.network.head, setup.start.fixed

    def own(z, n):
        made, labels = head({}, fixed, z), torch.zeros(3, dtype=torch.int64)
        return method.own.logits(StepView({}, {}, fixed, head, z, made, labels, n, server, {}, 0))

    together, one_by_one = (
        torch.vmap(own)(features, counts),
        torch.stack([own(*p) for p in zip(features, counts, strict=True)]),
    )
    torch.testing.assert_close(together, one_by_one, rtol=1e-14, atol=0)
    assert torch.equal(together.isneginf(), (counts == 0)[:, None].expand(4, 3, NUM_CLASSES))


def test_a_client_that_never_trained_has_the_global_model_and_its_own_scales():
    ran = train("fedgela", vectors(150, 100), rounds=1, clients_per_round=1, **BATCH_NORM, **MATCHED)
    idle = next(k for k in range(4) if k not in ran.history[0]["clients"])
    assert ran.driver._store.get(idle, 1) is None
    expected = own_accuracy(ran, idle, ran.state.params | ran.state.buffers, "identity")
    assert ran.driver.clients[idle]["accuracy"] == pytest.approx(expected, abs=1e-10)


def tuned_by_hand(ran, client, kind, phases, length=3.0):
    """The final global model, tuned on the adapted loss with the batches after the last round."""
    setup, rounds = ran.setup, ran.state.round
    task = setup.planner.task(rounds, client, plan_phases(setup.config, phases))
    own = {n: v.clone() for n, v in ran.state.buffers.items()}
    phi = torch.from_numpy(phi_table(setup.clients.train.table(), kind))[client]
    knobs = {"length": length, "normalize": True, "classes": "existing"}
    samples = setup.problem.samples
    loss = adapted_loss(
        LAYERS["batch"], own, samples.inputs, samples.labels, phi, task.counts, ran.state.fixed, knobs
    )  # fmt: skip
    batches = [b.indices for phase in task.phases for b in phase]
    return plain.local_sgd(loss, ran.state.params, batches, 0.05, 0.9, 1e-3) | own


@pytest.mark.parametrize(("method", "kind", "knobs"), CASES)
def test_fine_tuning_starts_from_the_global_model_and_predicts_with_the_scales(method, kind, knobs):
    """2.28: the tuned model, not the one kept from the last round, is measured."""
    mild = {} if method == "fedla" else MILD
    ran = train(f"{method}-ft", vectors(150, 100), **knobs, **mild, **BATCH_NORM, **MATCHED)
    values = []
    for client in range(4):
        expected = tuned_by_hand(ran, client, kind, ran.setup.method.phases)
        task = ran.setup.planner.task(2, client)
        own = ran.driver._store.get(client, 2)
        tuned = adapt_client(ran.setup.problem, ran.state, task, own, 0.05, ran.setup.method.phases).state
        assert_close(tuned["local"], expected, 1e-9)
        assert_same_bits(tuned["local"] | tuned[PERSONAL], tuned["local"])
        assert_different(tuned["local"], own["local"])
        values.append(own_accuracy(ran, client, expected, kind))
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)
    assert_same_bits(ran.state.fixed, ran.setup.start.fixed)


def test_fine_tuning_that_moves_nothing_measures_the_global_model():
    """2.28: neither the weights nor the statistics of the model kept from the last round come back."""
    method, still = fedgela(), Phase(sgd=Sgd(lr=0.0), statistics="keep")
    idle = finetuned(replace(method, own=replace(method.own, finetune=(still,))))
    ran = train(idle, vectors(150, 100), **BATCH_NORM, **MATCHED)
    values = [own_accuracy(ran, k, ran.state.params | ran.state.buffers, "identity") for k in range(4)]
    assert [row["accuracy"] for row in ran.driver.clients] == pytest.approx(values, abs=1e-10)


def far():
    """Points far out, from which gradients are huge."""
    data = vectors()
    return as_dataset((1e3 * data.train.inputs, data.train.labels, data.test.inputs, data.test.labels))


def first_step(method, **knobs):
    """A client's first step without momentum and decay, divided by the rate."""
    setup = build(method, far(), momentum=0.0, weight_decay=0.0, normalize=False, **knobs)
    task = tasks(setup)[1]
    after = trained(setup, replace(task, phases=(task.phases[0][:1],)), setup.start)
    return torch.cat([((setup.start.params[name] - after[name]) / 0.05).flatten() for name in sorted(after)])


NAMES = ["fedgela", "fedge", "fedla", "fedgela+prox", "fedgela+moon", "fedgela-ft", "fedgela+kd-ft"]


@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize(
    ("knobs", "norm"),
    [
        ({}, 20.0),
        ({"method.clip": 7.0}, 7.0),
        ({"optimizer.clip": 3.0}, 3.0),
        ({"optimizer.clip": 50.0}, 50.0),
        ({"optimizer.clip": 3.0, **UNCLIPPED}, 3.0),
    ],
)
def test_a_huge_gradient_is_cut_to_the_norm_and_keeps_its_direction(method, knobs, norm):
    """2.22: 20 by default; the run's own number goes before the method's."""
    whole, cut = first_step(method, **UNCLIPPED), first_step(method, **knobs)
    assert whole.norm() > 500
    torch.testing.assert_close(cut, whole * (norm / whole.norm()), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["fedgela", "fedgela+moon"])
def test_a_small_gradient_is_left_alone(method):
    assert_same_run(train(method, lr=0.02, **MILD), train(method, lr=0.02, **MILD, **UNCLIPPED))


@pytest.mark.parametrize("method", NAMES)
def test_the_card_tells_the_clip(method):
    (phase,) = make_card(method).phases
    assert phase.remarks == ("gradients clipped at norm 20",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedgela(E_W=0.0), r"E_W=0\.0: expected a number above 0"),
        (lambda: fedge(E_W=float("inf")), "E_W=inf"),
        (lambda: fedgela(temperature=-1.0), r"temperature=-1\.0: expected a number above 0"),
        (lambda: fedgela(clip=0.0), r"clip=0\.0: expected a gradient norm above 0"),
        (lambda: fedge(clip=-1.0), r"clip=-1\.0: expected"),
        (lambda: fedla(clip=float("nan")), "clip=nan: expected"),
        (lambda: fedgela(phi="log"), "unknown phi 'log'"),
        (lambda: fedgela(head="project"), "unknown head 'project'.*projected"),
        (lambda: fedla(softmax_classes="some"), "unknown classes 'some'"),
    ],
)
def test_bad_knobs_are_refused(make, message):
    with pytest.raises(Misconfigured, match=message):
        make()
