"""CCVR: the classifier is calibrated with drawn features."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.errors import Misconfigured, NonFinite
from fedblade.core.lengths import PhasePlan
from fedblade.core.outcome import collect_client
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.core.views import StepView
from fedblade.methods.ccvr import _class_moments, ccvr
from fedblade.methods.fedavg import fedavg
from fedblade.results import RunDirectory
from fedblade.runs._summary import summarise
from fedblade.server import class_gaussian, virtual_features
from support.one_client import adapt_client
from support.small_federation import (
    BATCH_NORM,
    DIM,
    NUM_CLASSES,
    assert_close,
    assert_same_bits,
    build,
    tasks,
    train,
    vectors,
)


def moments_of(setup, state, chosen):
    (exchange,) = setup.method.exchanges
    parts = [collect_client(setup.problem, state, task, None, exchange.sums).sums for task in chosen]
    return [part["moments"] for part in parts], sum(parts[1:], start=parts[0])["moments"]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_pooled_moments_are_those_of_the_union(norm):
    setup = build("ccvr", **{"model.norm": norm})
    _, pooled = moments_of(setup, setup.start, tasks(setup))
    samples = setup.problem.samples
    z = setup.problem.network.features(setup.start.params, setup.start.buffers, samples.inputs, training=False)
    for label in range(NUM_CLASSES):
        mean, covariance = class_gaussian(pooled, label)
        mine = z[samples.labels == label].numpy()
        np.testing.assert_allclose(mean.numpy(), mine.mean(0), rtol=0, atol=1e-9)
        np.testing.assert_allclose(covariance.numpy(), np.cov(mine, rowvar=False), rtol=0, atol=1e-9)


def local_gaussian(moments, label):
    """A client's own mean and unbiased covariance; that of a single sample is 0."""
    n, total, outer = (moments[part][label].numpy() for part in ("count", "sum", "outer"))
    mean = total / n
    return n, mean, (outer - n * np.outer(mean, mean)) / max(n - 1, 1)


def test_pooling_sums_is_the_formula_of_the_card():
    """Clients' means and covariances pooled as the card says, from clients that hold one sample of a class and none."""
    setup = build("ccvr", **BATCH_NORM)
    parts, pooled = moments_of(setup, setup.start, tasks(setup))
    held = np.array([part["count"].tolist() for part in parts])
    assert (held == 0).any()
    for label in range(NUM_CLASSES):
        local = [local_gaussian(part, label) for part in parts if part["count"][label] > 0]
        n = sum(each[0] for each in local)
        mean = sum(k * mu for k, mu, _ in local) / n
        covariance = sum((k - 1) / (n - 1) * sigma for k, _, sigma in local)
        covariance = covariance + sum(k / (n - 1) * np.outer(mu, mu) for k, mu, _ in local)
        covariance = covariance - n / (n - 1) * np.outer(mean, mean)
        ours = class_gaussian(pooled, label)
        np.testing.assert_allclose(ours[0].numpy(), mean, rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours[1].numpy(), covariance, rtol=0, atol=1e-9)


def test_a_client_with_one_sample_of_a_class_adds_its_mean_alone():
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [_moments(z[:1]), _moments(z[1:])]
    pooled = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    mean, covariance = class_gaussian(pooled, 0)
    np.testing.assert_allclose(mean.numpy(), z.numpy().mean(0), atol=1e-12)
    np.testing.assert_allclose(covariance.numpy(), np.cov(z.numpy(), rowvar=False), atol=1e-12)


def _moments(z, labels=None, mask=None, classes=2):
    fields = {
        "features": z,
        "labels": torch.zeros(len(z), dtype=torch.int64) if labels is None else labels,
        "counts": torch.ones(classes),
        "mask": mask,
    }
    return _class_moments(StepView(**{**dict.fromkeys(StepView.__dataclass_fields__), **fields}))


def test_padding_may_hold_anything():
    z, labels = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 1, 0])
    exact = _moments(z, labels)
    for junk, label in ((torch.nan, -1), (torch.inf, 99), (1e9, 1)):
        padded = torch.cat([z, torch.full((2, 2), junk)]), torch.cat([labels, torch.tensor([label, label])])
        assert_same_bits(_moments(*padded, torch.tensor([1.0, 1, 1, 1, 0, 0])), exact)


def test_a_vmap_over_clients_is_a_loop():
    z = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0]])
    stacked = torch.func.vmap(_moments)(z, labels)
    for client in range(3):
        alone = _moments(z[client], labels[client])
        assert_close({name: leaf[client] for name, leaf in stacked.items()}, alone, 1e-12)


def pooled(*classes):
    """Moments of these samples, one array per class."""
    z = torch.cat([torch.as_tensor(rows, dtype=torch.float64).reshape(-1, 2) for rows in classes])
    labels = torch.cat([torch.full((len(rows),), label) for label, rows in enumerate(classes)])
    return _moments(z, labels, classes=len(classes))


def generator():
    return torch.Generator().manual_seed(0)


def timeless(ran):
    return [{key: value for key, value in row.items() if key != "exchange_seconds"} for row in ran.history]


def test_classes_with_fewer_than_two_samples_are_left_out():
    moments = pooled([[1.0, 2.0], [3.0, 5.0]], [[7.0, 7.0]], [], [[0.0, 1.0], [1.0, 0.0]])
    features, labels = virtual_features(moments, 3, generator())
    assert labels.tolist() == [0, 0, 0, 3, 3, 3]
    assert features.shape == (6, 2)


def test_draws_have_the_moments_of_their_class():
    """Against samples drawn twenty thousand times; the deviation of a mean is 1/141 of that of a draw."""
    rows = torch.tensor([[0.0, 0.0], [4.0, 2.0], [1.0, -3.0], [-2.0, 1.0]], dtype=torch.float64)
    features, _ = virtual_features(pooled(rows.tolist()), 20_000, generator())
    covariance = torch.from_numpy(np.cov(rows.numpy(), rowvar=False))
    torch.testing.assert_close(features.mean(0), rows.mean(0), rtol=0, atol=0.1)
    torch.testing.assert_close(torch.cov(features.mT), covariance, rtol=0, atol=0.3)


def test_equal_samples_are_drawn_close_to_their_mean():
    features, _ = virtual_features(pooled([[3.0, -2.0]] * 4), 50, generator())
    gaps = features - torch.tensor([3.0, -2.0])
    assert 1e-4 < gaps.abs().max() < 1e-2


def test_moments_that_no_gaussian_has_are_refused():
    bad = {"count": torch.tensor([3.0]), "sum": torch.zeros(1, 2), "outer": -torch.eye(2)[None]}
    with pytest.raises(NonFinite, match="covariance"):
        virtual_features({name: leaf.double() for name, leaf in bad.items()}, 1, generator())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_only_the_head_changes_after_the_run(dtype):
    calibrated, plainly = (train(method, dtype=dtype, **BATCH_NORM).state for method in ("ccvr", "fedavg"))
    body = [n for n in plainly.params if n.startswith("body.")]
    assert_same_bits(*({n: state.params[n] for n in body} for state in (calibrated, plainly)))
    assert_same_bits(calibrated.buffers, plainly.buffers)
    for name in ("head.weight", "head.bias"):
        assert calibrated.params[name].dtype == plainly.params[name].dtype
        assert not torch.equal(calibrated.params[name], plainly.params[name])


def test_training_is_that_of_fedavg():
    ours, theirs = (train(method, rounds=3, clients_per_round=2).history for method in ("ccvr", "fedavg"))
    for mine, other in zip(ours, theirs, strict=True):
        assert {key: mine[key] for key in other if not key.startswith("bytes")} == {
            key: value for key, value in other.items() if not key.startswith("bytes")
        }
    assert "calibrated_accuracy" in ours[-1]
    assert "calibrated_accuracy" not in ours[0]


def test_the_head_is_trained_by_plain_sgd_on_the_virtual_features():
    """The same features and shuffles, and PyTorch's own optimiser."""
    knobs = {"samples_per_class": 7, "method.epochs": 5, "method.lr": 0.2, "method.batch_size": 16}
    setup = build("ccvr", **knobs)
    _, moments = moments_of(setup, setup.start, tasks(setup))
    (exchange,) = setup.method.exchanges
    state = setup.start.replace(round=3)
    ours = exchange.server(state, Sums({"moments": moments})).params
    draws = setup.planner.streams.torch("server", 3)
    features, labels = virtual_features(moments, 7, draws)
    head = torch.nn.Linear(DIM, NUM_CLASSES).double()
    head.load_state_dict({part: setup.start.params[f"head.{part}"] for part in ("weight", "bias")})
    optimiser = torch.optim.SGD(head.parameters(), lr=0.2)
    for _ in range(5):
        for part in torch.randperm(35, generator=draws).split(16):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(head(features[part]), labels[part]).backward()
            optimiser.step()
    assert_close(
        {name: ours[name] for name in ("head.weight", "head.bias")},
        {f"head.{name}": leaf.detach() for name, leaf in head.named_parameters()},
        1e-12,
    )


def test_a_class_that_nobody_holds_does_not_stop_the_calibration():
    """Three classes are dealt out of five."""
    data = vectors()
    few = data.train.labels < 3
    part = replace(data.train, inputs=data.train.inputs[few], labels=data.train.labels[few])
    ran = train("ccvr", replace(data, train=part))
    assert all(torch.isfinite(leaf).all() for leaf in ran.state.params.values())
    assert not torch.equal(ran.state.params["head.weight"], train("fedavg").state.params["head.weight"])


def test_without_a_class_of_two_samples_nothing_happens():
    setup = build("ccvr")
    (exchange,) = setup.method.exchanges
    empty = {
        "count": torch.ones(NUM_CLASSES).double(),
        "sum": torch.zeros(NUM_CLASSES, DIM).double(),
        "outer": torch.zeros(NUM_CLASSES, DIM, DIM).double(),
    }
    after: ServerState = exchange.server(setup.start, Sums({"moments": empty}))
    assert_same_bits(after.flat(), setup.start.flat())


def test_a_run_repeated_is_the_same_run():
    first, second = (train("ccvr", **BATCH_NORM) for _ in range(2))
    assert timeless(first) == timeless(second)
    assert_same_bits(first.state.flat(), second.state.flat())
    other = train("ccvr", seed=4, **BATCH_NORM)
    assert not torch.equal(other.state.params["head.weight"], first.state.params["head.weight"])


def test_a_resumed_run_calibrates_as_one_that_never_stopped(tmp_path):
    """Stopped after two of three rounds: the draws depend on seed and round alone."""
    settings = {"rounds": 3, "clients_per_round": 2, **BATCH_NORM}
    whole = train("ccvr", **settings)
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    train("ccvr", directory=directory, **settings)
    (directory.checkpoints / "round-000003.safetensors").unlink()
    again = train("ccvr", directory=RunDirectory(tmp_path), **settings)
    assert_same_bits(again.state.flat(), whole.state.flat())
    assert timeless(again) == timeless(whole)


GAPA = {"evaluation.protocol": "gapa", "dataset.test_split": "matched", "rounds": 3, **BATCH_NORM}


def tuned_accuracy(setup, state, client):
    """A client's accuracy on its own samples after ten epochs from `state`, by the local loop and by hand."""
    phases = (replace(setup.method.phases[0], epochs=10),)
    task = setup.planner.task(3, client, (PhasePlan(10),))
    own = adapt_client(setup.problem, state, task, None, setup.config.optimizer.rate(2, 3), phases).state
    params, buffers = own[PERSONAL], state.buffers | own.get(BUFFERS, {})
    x, y = setup.test.batch(torch.from_numpy(setup.clients.part(client)))
    z = setup.problem.network.features(params, buffers, x, training=False)
    right = setup.problem.network.output(params, {}, z).logits.argmax(1) == y
    return 100 * right.double().mean().item()


def test_gapa_reports_and_tunes_the_calibrated_model():
    """No round knows it, so that neither the best round nor the last one may take its place."""
    ran = train("ccvr", samples_per_class=1, **{"method.lr": 1.0}, **GAPA)
    plain = train("fedavg", **GAPA)
    found = summarise(ran.setup, ran.driver.history, "finished", ran.driver.clients)
    calibrated = ran.history[-1]["calibrated_accuracy"]
    assert found["accuracy"] == found["general_accuracy"] == found["general_final_accuracy"] == calibrated
    assert calibrated not in [row["test_accuracy"] for row in ran.history]
    values = [row["accuracy"] for row in ran.driver.clients]
    assert values == pytest.approx([tuned_accuracy(ran.setup, ran.state, k) for k in range(4)], abs=1e-10)
    assert values != [row["accuracy"] for row in plain.driver.clients]
    assert found["personal_accuracy"] == found["personal_final_accuracy"] == pytest.approx(np.mean(values))
    assert (ran.driver._personal_models.best, ran.driver._personal_models.facts()) == (None, {})


def test_moments_of_held_classes_are_counted_once():
    ours, theirs = (train(method).history for method in ("ccvr", "fedavg"))
    held = int((build("ccvr").clients.train.table() > 0).sum())
    extra = [mine["bytes_up"] - other["bytes_up"] for mine, other in zip(ours, theirs, strict=True)]
    assert extra == [0, held * (1 + DIM + DIM**2) * 8]


def test_the_seed_stays_on_the_server():
    assert ccvr().sent == ()
    assert ccvr().phases == fedavg().phases


@pytest.mark.parametrize(
    "knobs", [{"samples_per_class": 0}, {"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}]
)
def test_nonsense_is_refused(knobs):
    (name,) = knobs
    with pytest.raises(Misconfigured, match=f"{name}={knobs[name]}"):
        ccvr(**knobs)
