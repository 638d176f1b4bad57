"""A step whose gradient is taken elsewhere, against two passes written out by hand."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch.nn import functional as F

from fedblade.core.method import model
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.phase import Lookahead, Phase
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.core.tree import tree_clone, tree_map, tree_norm
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, build, tasks

LR, MOMENTUM, DECAY, RHO = 0.05, 0.9, 1e-3, 0.1


def uphill(view):
    """SAM's point: ρ along the gradient."""
    norm = tree_norm(view.gradient)
    return tree_map(lambda w, g: w + RHO * g / norm, view.params, view.gradient)


def stay(view):
    return view.params


@dataclass(frozen=True, kw_only=True)
class Decay(Term):
    """Mean square of the features."""

    name: ClassVar[str] = "decay"

    def __call__(self, view):
        return TermValue(view.features.square().mean())


def looking(look, base=None, **phase):
    return replace(base or fedavg(), phases=(Phase(lookahead=look, **phase),))


def local(setup, task):
    return train(setup.problem, receive(setup.problem, setup.start, task, None, LR))


def value(setup, params, buffers, batch, decay=0.0):
    x, y = setup.problem.samples.batch(batch.indices, batch.draws)
    z = setup.problem.network.features(params, buffers, x, training=True)
    logits = F.linear(z, params["head.weight"], params["head.bias"])
    return F.cross_entropy(logits, y, reduction="none").mean() + decay * z.square().mean()


def two_passes(setup, batches, trains=("body.", "head."), first_decay=None):
    """SAM with momentum and weight decay: (params, buffers, the losses of both passes)."""
    params = {name: leaf.clone().requires_grad_() for name, leaf in setup.start.params.items()}
    chosen = [name for name in params if name.startswith(trains)]
    buffers, velocity = tree_clone(setup.start.buffers), {name: torch.zeros_like(params[name]) for name in chosen}
    losses = []
    for batch in batches:
        here = value(setup, params, buffers, batch, first_decay or 0.0)
        slopes = torch.autograd.grad(here, [params[name] for name in chosen])
        length = torch.cat([slope.flatten() for slope in slopes]).norm()
        moved = dict(params)
        for name, slope in zip(chosen, slopes, strict=True):
            moved[name] = (params[name] + RHO * slope / length).detach().requires_grad_()
        there = value(setup, moved, tree_clone(buffers), batch.then or batch)
        final = torch.autograd.grad(there, [moved[name] for name in chosen])
        with torch.no_grad():
            for name, slope in zip(chosen, final, strict=True):
                velocity[name] = MOMENTUM * velocity[name] + slope + DECAY * params[name]
                params[name] -= LR * velocity[name]
        losses.append((here.item(), there.item()))
    return {name: leaf.detach() for name, leaf in params.items()}, buffers, losses


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("norm", [BATCH_NORM, {}], ids=["batch_norm", "plain"])
def test_a_lookahead_is_two_passes(norm, fresh):
    setup = build(looking(Lookahead(uphill, fresh_batch=fresh)), **norm)
    task = tasks(setup)[2]
    params, buffers, losses = two_passes(setup, task.phases[0])
    row, trace = local(setup, task)
    assert_close(row.params, params, 1e-12)
    assert_close(row.buffers, buffers, 1e-12)
    for entry, (here, there) in zip(trace, losses, strict=True):
        assert entry["loss_inner_supervised"].item() == pytest.approx(here, abs=1e-12)
        assert entry["loss_supervised"].item() == pytest.approx(there, abs=1e-12)
    assert_different(row.params, local(build(**norm), tasks(build(**norm))[2])[0].params)


def test_only_the_first_pass_updates_statistics():
    setup = build(looking(Lookahead(uphill, fresh_batch=True)), **BATCH_NORM)
    task = tasks(setup)[2]
    row, _ = local(setup, task)
    assert row.buffers["body.layers.1.num_batches_tracked"] == len(task.phases[0])


def test_a_fresh_batch_is_the_plans_second():
    setup = build(looking(Lookahead(uphill, fresh_batch=True)))
    task = tasks(setup)[2]
    assert all(batch.then is not None for batch in task.phases[0])
    other = replace(task, phases=(tuple(replace(b, then=b) for b in task.phases[0]),))
    same = replace(task, phases=(tuple(replace(b, then=None) for b in task.phases[0]),))
    assert_same_bits(local(setup, other)[0].params, local(setup, same)[0].params)
    assert_different(local(setup, other)[0].params, local(setup, task)[0].params)


def test_to_stay_in_place_is_no_lookahead():
    setup, plain = build(looking(Lookahead(stay))), build()
    for task in tasks(plain):
        assert_same_bits(local(setup, task)[0].params, local(plain, task)[0].params)


def test_only_trained_parameters_move():
    seen = []

    def watched(view):
        seen.append(view)
        return uphill(view)

    setup = build(looking(Lookahead(watched), trains=("head",)), **BATCH_NORM)
    task = tasks(setup)[0]
    row, _ = local(setup, task)
    assert all(view.params.keys() == view.gradient.keys() == {"head.weight", "head.bias"} for view in seen)
    params, buffers, _ = two_passes(setup, task.phases[0], trains=("head.",))
    assert_close(row.params, params, 1e-12)
    assert_close(row.buffers, buffers, 1e-12)


def test_a_move_sees_where_it_is_where_it_started_and_the_rounds_rate():
    seen = []

    def watched(view):
        seen.append(replace(view, params=tree_clone(view.params)))
        return uphill(view)

    setup = build(looking(Lookahead(watched)))
    local(setup, tasks(setup)[0])
    assert_same_bits(seen[0].params, setup.start.params)
    assert_different(seen[1].params, setup.start.params)
    for view in seen:
        assert_same_bits(view.anchor, setup.start.params)
        assert view.lr == LR
        assert not any(leaf.requires_grad for leaf in view.params.values())
        assert not torch.is_grad_enabled() or all(not leaf.requires_grad for leaf in view.gradient.values())


def test_the_first_gradient_may_be_of_other_losses():
    look = Lookahead(uphill, losses=(CrossEntropy(), Decay(weight=0.3)))
    setup = build(looking(look), **BATCH_NORM)
    task = tasks(setup)[1]
    params, buffers, _ = two_passes(setup, task.phases[0], first_decay=0.3)
    row, trace = local(setup, task)
    assert_close(row.params, params, 1e-12)
    assert_close(row.buffers, buffers, 1e-12)
    assert trace[0].keys() == {"loss_inner_supervised", "loss_inner_decay", "loss_supervised"}
    assert_different(row.params, two_passes(setup, task.phases[0])[0])


def test_the_first_pass_logs_under_names_of_its_own():
    """So that a term of both passes is logged twice, and its mean is that of the second pass."""

    @dataclass(frozen=True, kw_only=True)
    class Counts(Decay):
        def __call__(self, view):
            return replace(super().__call__(view), logs={"count_seen": torch.ones(()), "seen": view.features.mean()})

    base = replace(fedavg(), losses=(CrossEntropy(), Counts(weight=0.1)))
    setup = build(looking(Lookahead(uphill), base=base))
    _, trace = local(setup, tasks(setup)[0])
    names = {"supervised", "decay"}
    assert trace[0].keys() == {f"loss_{n}" for n in names} | {f"loss_inner_{n}" for n in names} | {"count_seen", "seen"}
    assert [entry["count_seen"].item() for entry in trace] == [2.0] * len(trace)


def test_gradient_terms_act_in_both_passes():
    @dataclass(frozen=True, kw_only=True)
    class Push(GradientTerm):
        name: ClassVar[str] = "push"

        def gradient(self, view):
            return {"head.bias": torch.full_like(view.params["head.bias"], 2.0)}

    seen = []

    def watched(view):
        seen.append(view.gradient["head.bias"].clone())
        return view.params

    base = replace(fedavg(), losses=(CrossEntropy(), Push(weight=0.5)))
    pushed, plain = (build(looking(Lookahead(watched), base=b), momentum=0.0, weight_decay=0.0) for b in (base, None))
    task = tasks(pushed)[0]
    one = replace(task, phases=(task.phases[0][:1],))
    a, b = (local(setup, one)[0].params["head.bias"] for setup in (pushed, plain))
    torch.testing.assert_close(seen[0], seen[1] + 1.0, rtol=0, atol=1e-14)
    torch.testing.assert_close(a, b - LR, rtol=0, atol=1e-14)


def test_a_track_may_look_ahead():
    phases = (Phase(epochs=1), Phase(epochs=1, track="own", lookahead=Lookahead(uphill)))
    setup = build(replace(fedavg(), phases=phases, client_state={"own": model}), **BATCH_NORM)
    task = tasks(setup)[2]
    row, trace = local(setup, task)
    params, buffers, _ = two_passes(setup, task.phases[1])
    assert_close(row.tracks["own"].params, params, 1e-12)
    assert_close(row.tracks["own"].buffers, buffers, 1e-12)
    assert trace[-1].keys() == {"own_loss_inner_supervised", "own_loss_supervised"}
