"""β·L_base + (1 − β)·L_reg, the synergy grid."""

import re
from dataclasses import replace
from functools import cache

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.gradient import step_gradient
from fedblade.core.method import zeros
from fedblade.core.network import Network
from fedblade.core.one_client import OneClient, receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.problem import LocalModel
from fedblade.core.registry import regularisers as registry
from fedblade.core.work import prepare_phase
from fedblade.losses import Decorr
from fedblade.methods import compose
from fedblade.methods.fedavg import fedavg
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
)

BASES = ["fedavg", "fedetf", "fedbabu", "spherefed", "fedgela", "dotreg"]
TEACHERS = ["kd", "ntd", "ld", "moon", "fd"]
ALL = ["prox", *TEACHERS]


def beta_of(added, beta):
    return {f"method.{added}.beta": beta}


@cache
def run_of(base, norm="none"):
    return train(base, **{"model.norm": norm})


def taught_as_it_learns(added):
    return {f"method.{added}.teacher_norm": "batch"} if added in TEACHERS else {}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("added", ALL)
def test_a_share_of_one_is_the_base(base, added):
    """A regulariser without weight leaves the base as it is, bit for bit."""
    assert_same_run(train(f"{base}+{added}", **beta_of(added, 1.0), **BATCH_NORM), run_of(base, "batch"))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("added", ALL)
def test_a_smaller_share_is_not(base, added):
    mixed, alone = train(f"{base}+{added}", **beta_of(added, 0.5)), run_of(base)
    assert_different(mixed.state.params, alone.state.params)
    for key in ("clients", "bytes_up", "bytes_down"):
        assert [row[key] for row in mixed.history] == [row[key] for row in alone.history]


def test_the_default_share_is_nine_tenths():
    for added in ALL:
        assert registry.get(added).knobs()["beta"].default == 0.9


def received_by(setup, previous=None):
    """The third client in its first round, alone with its first batch; it may have been there before."""
    task = tasks(setup)[2]
    received = receive(setup.problem, setup.start, replace(task, phases=(task.phases[0][:1],)), None, 0.05)
    return received if previous is None else replace(received, client={**received.client, "previous": previous})


def moved(tree, seed, size=0.1):
    generator = torch.Generator().manual_seed(seed)
    return {n: v + size * torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in tree.items()}


def gradient_at(setup, params, previous=None):
    """Gradient of the method's objective at `params`, the model received being the run's first."""
    received = received_by(setup, previous)
    leaves = {n: v.detach().clone().requires_grad_() for n, v in params.items()}
    work = prepare_phase(setup.problem, setup.method.phases[0], leaves)
    batch = received.batches[0][0]
    buffers = {n: v.clone() for n, v in received.buffers.items()}
    return step_gradient(OneClient(setup.problem), received, work, batch, LocalModel(leaves, buffers, {})).gradient


def raw_logits(params, fixed, z):
    """W z + b, or Vᵀ of the projector's output."""
    if "head.weight" in params:
        return z @ params["head.weight"].T + params["head.bias"]
    return (z @ params["projector.weight"].T + params["projector.bias"]) @ fixed["etf"]


def divergence(student, teacher, tau):
    p, q = torch.softmax(teacher / tau, -1), torch.softmax(student / tau, -1)
    return tau**2 * (p * (p / q).log()).sum(-1)


def regulariser(name, setup, params, previous):
    """L_reg as the table says, at tau 2, teachers with batch statistics; `previous` are MOON's parameters."""
    x, y, _ = first_batch(setup)
    start, fixed = setup.start.params, setup.start.fixed

    def look(model):
        return plain.features(plain.MLP_BATCH_NORM, model, dict(setup.start.buffers), x, training=True)

    z, z_g = look(params), look(start)
    student, teacher = raw_logits(params, fixed, z), raw_logits(start, fixed, z_g)
    if name == "prox":
        return sum(((w - start[n]) ** 2).sum() for n, w in params.items()) / 2
    if name == "kd":
        return divergence(student, teacher, 2.0).mean()
    if name == "ntd":
        kept = [[c for c in range(5) if c != label] for label in y.tolist()]
        rows = zip(student, teacher, kept, strict=True)
        return torch.stack([divergence(s[keep], t[keep], 2.0) for s, t, keep in rows]).mean()
    if name == "ld":
        return ((student - teacher) ** 2).sum(1).mean() / 5
    if name == "fd":
        return ((z - z_g) ** 2).sum(1).mean() / 16
    near, left = ((plain.unit(z) * plain.unit(other)).sum(1) / 2.0 for other in (z_g, look(previous)))
    return -(near.exp() / (near.exp() + left.exp())).log().mean()


def first_batch(setup):
    indices = tasks(setup)[2].phases[0][0].indices
    return setup.problem.samples.inputs[indices], setup.problem.samples.labels[indices], indices


@pytest.mark.parametrize("base", ["fedavg", "fedetf"])
@pytest.mark.parametrize("added", ALL)
def test_gradients_mix_those_of_the_base_and_of_the_table(base, added):
    """β·∇L_base + (1 − β)·∇L_reg away from the received model; FedAvg + Prox is βg + (1 − β)(w − w^t)."""
    knobs = {f"method.{added}.tau": 2.0} if added in ("kd", "ntd", "moon") else {}
    mixed = build(f"{base}+{added}", **beta_of(added, 0.3), **knobs, **taught_as_it_learns(added), **BATCH_NORM)
    alone = build(base, **BATCH_NORM)
    params, previous = moved(alone.start.params, 1), moved(alone.start.params, 2)
    leaves = {n: v.clone().requires_grad_() for n, v in params.items()}
    value = regulariser(added, alone, leaves, previous)
    parts = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    own = dict(zip(leaves, parts, strict=True))
    if added == "prox":
        assert_close(own, {n: params[n] - alone.start.params[n] for n in params}, 1e-15)
    state = previous | alone.start.buffers
    base_gradient = gradient_at(alone, params)
    found = gradient_at(mixed, params, state if added == "moon" else None)
    assert_close(found, {n: 0.3 * base_gradient[n] + 0.7 * own[n] for n in own}, 1e-12)
    assert sum(v.abs().sum() for v in own.values()) > 1e-3


def one_step(setup, previous=None):
    return local_train(setup.problem, received_by(setup, previous))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("added", ALL)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_student_equal_to_its_teacher_is_left_alone(base, added, norm):
    """With all the weight on L_reg the first step of a round goes nowhere, and its value is 0 (MOON: log 2)."""
    overrides = {"momentum": 0.0, "weight_decay": 0.0, "model.norm": norm}
    setup = build(f"{base}+{added}", **beta_of(added, 0.0), **taught_as_it_learns(added), **overrides)
    same = setup.start.params | setup.start.buffers
    row, (logged,) = one_step(setup, same if added == "moon" else None)
    assert_close(row.params, setup.start.params, 1e-15)
    if added != "prox":
        value = torch.tensor(2.0).double().log().item() if added == "moon" else 0.0
        assert logged[f"loss_{added}"].item() == pytest.approx(value, abs=1e-14)


@pytest.mark.parametrize("added", TEACHERS)
def test_a_teacher_in_evaluation_differs_from_its_student(added):
    """The reason for `teacher_norm`: running statistics are not those of the batch."""
    quiet = {"momentum": 0.0, "weight_decay": 0.0, **BATCH_NORM}
    setup = build(f"fedavg+{added}", **beta_of(added, 0.0), **quiet)
    other = moved(setup.start.params, 3) | setup.start.buffers
    assert_different(one_step(setup, other if added == "moon" else None)[0].params, setup.start.params)


@pytest.mark.parametrize("added", TEACHERS)
@pytest.mark.parametrize("teacher_norm", ["eval", "batch"])
def test_teachers_leave_all_statistics_alone(added, teacher_norm):
    setup = build(f"fedavg+{added}", **{f"method.{added}.teacher_norm": teacher_norm}, **BATCH_NORM)
    received = received_by(setup)
    before = {n: v.clone() for n, v in received.buffers.items()}
    row, _ = local_train(setup.problem, received)
    assert_same_bits(received.buffers, before)
    assert_same_bits(row.buffers, one_step(build("fedavg", **BATCH_NORM))[0].buffers)


@pytest.fixture
def passes(monkeypatch):
    """Forward passes of the extractor: True for each that builds a graph."""
    seen, forward = [], Network._forward

    def counted(*args, **kwargs):
        seen.append(torch.is_grad_enabled())
        return forward(*args, **kwargs)

    monkeypatch.setattr(Network, "_forward", counted)
    return seen


@pytest.mark.parametrize(
    ("name", "teachers"),
    [
        ("fedavg+prox", 0),
        ("fedavg+kd", 1),
        ("fedavg+kd+ntd+ld+fd", 1),
        ("fedavg+kd+ntd+ld+fd+moon", 2),
        ("fedntd+fd+ld", 1),
        ("moon+fd", 2),
    ],
)
def test_one_pass_of_a_teacher_serves_all_terms(name, teachers, passes):
    setup = build(name)
    passes.clear()
    one_step(setup)
    assert (passes.count(True), passes.count(False)) == (1, teachers)


def test_teachers_that_normalise_differently_are_different_teachers(passes):
    setup = build("fedavg+kd+fd", **{"method.fd.teacher_norm": "batch"})
    passes.clear()
    one_step(setup)
    assert passes.count(False) == 2


def test_several_regularisers_are_mixed_one_after_the_other():
    """The second takes its share of what the first has made: β₂(β₁g + (1 − β₁)g₁) + (1 − β₂)g₂."""
    setup = {name: build(name, **BATCH_NORM) for name in ("fedavg", "fedavg+prox", "fedavg+fd", "fedavg+prox+fd")}
    params = moved(setup["fedavg"].start.params, 1)
    g, with_prox, with_fd, both = (gradient_at(each, params) for each in setup.values())
    expected = {n: 0.9 * with_prox[n] + (with_fd[n] - 0.9 * g[n]) for n in g}
    assert_close(both, expected, 1e-13)


def test_moon_keeps_the_state_of_its_base():
    base = replace(fedavg(), client_state={"h": zeros}, client_update={"h": lambda view: view.client["h"]})
    method = registry.get("moon").make()(base)
    assert method.client_state.keys() == method.client_update.keys() == {"h", "previous"}
    ran = train(method, rounds=1)
    for client in range(4):
        state = ran.driver._store.get(client, 1)
        assert state.keys() == {"h", "previous"}
        assert state["previous"].keys() == ran.state.params.keys()


def test_moon_is_silent_in_the_first_round():
    """The base keeps its share β, here one half, and the term adds nothing."""
    half = replace(fedavg(), losses=tuple(replace(term, weight=0.5) for term in fedavg().losses))
    mixed = train("fedavg+moon", rounds=1, **beta_of("moon", 0.5))
    assert_same_bits(mixed.state.params, train(half, rounds=1).state.params)


def test_moon_refuses_a_base_that_keeps_something_under_its_name():
    with pytest.raises(Misconfigured, match="already has a client state 'previous'"):
        compose("moon+moon").build({})


@pytest.mark.parametrize("added", ALL)
@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(added, beta):
    with pytest.raises(Misconfigured, match="beta"):
        registry.get(added).make(beta=beta)


@pytest.mark.parametrize("added", ["kd", "ntd", "moon"])
def test_a_temperature_must_be_positive(added):
    with pytest.raises(Misconfigured, match="tau=0"):
        registry.get(added).make(tau=0.0)


def test_a_term_that_is_in_the_loss_already_is_refused_and_a_related_one_is_not():
    """Of one class, whatever its weight: `feddecorr+feddecorr` applied the term twice."""
    twice = [
        ("feddecorr+feddecorr", {}), ("fedblade+lddecorr", {}), ("fedprox+prox", {}), ("feddyn+prox", {}),
        ("fedntd+ntd", {}), ("decov+decov", {}), ("stdecov+stdecov", {}), ("lsingular+lsingular", {}),
        ("feddr_plus+fd", {}), ("fedavg+lddecorr+feddecorr", {"lddecorr": {"decorr": Decorr(kind="feddecorr")}}),
    ]  # fmt: skip
    for name, knobs in twice:
        last = name.rpartition("+")[2]
        with pytest.raises(Misconfigured, match=rf"'{re.escape(name)}' already has the term .* Leave '\+{last}' out"):
            compose(name).build(knobs)
    with pytest.raises(Misconfigured, match="FeatureDistillation"):
        build("dotreg+fd-ft", **{"ft.loss": "feddr_plus"})
    with pytest.raises(Misconfigured, match="repeated part"):
        compose("fedavg+kd+kd")
    for name in ("feddecorr+lddecorr", "fedblade+feddecorr", "decov+stdecov", "fedntd+kd", "dotreg+fd", "moon+fd"):
        assert compose(name).build({}).losses
