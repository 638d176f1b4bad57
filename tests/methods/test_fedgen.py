"""FedGen: the generator, its training on the server, the clients' terms, and whole runs."""

import math
from dataclasses import replace
from functools import reduce

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.method import InitView
from fedblade.core.outcome import train_client
from fedblade.core.streams import Streams
from fedblade.core.sums import Sums
from fedblade.core.views import StepView
from fedblade.heads import LinearHead
from fedblade.losses import Generated, GeneratedMatch
from fedblade.losses._generated import faded, pick_labels
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedgen import fedgen
from fedblade.results import RunDirectory
from fedblade.server import FeatureGenerator, GeneratorTraining, label_shares, no_moments
from support.small_federation import (
    BATCH_NORM,
    DIM,
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

SMALL = {"nz": 6, "hid": 12, "n_it": 4, "gen_batch": 10}
CLASSES, WIDTH = 4, 3
G = FeatureGenerator(nz=6, hid=12)


def double(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensors(generator=G, dim=WIDTH, classes=CLASSES):
    view = InitView({"w": torch.zeros(1, dtype=torch.float64)}, dim, classes, 1, streams=Streams(5))
    return generator.init(view), no_moments(generator, view)


def module_of(tree, classes=CLASSES, nz=6, hid=12, dim=WIDTH):
    """The same generator in PyTorch's own layers."""
    module = nn.Sequential(nn.Linear(classes + nz, hid), nn.BatchNorm1d(hid), nn.ReLU(), nn.Linear(hid, dim)).double()
    names = {"in": "0", "norm": "1", "out": "3"}
    own = {f"{names[n.partition('.')[0]]}.{n.partition('.')[2]}": leaf.clone() for n, leaf in tree.items()}
    module.load_state_dict(own | {"1.num_batches_tracked": torch.tensor(0)})
    return module


TREE = tensors()[0]

# The generator


@pytest.mark.parametrize("noise", ["uniform", "normal"])
def test_the_generator_is_the_network_of_the_card(noise):
    generator = replace(G, noise=noise)
    tree, _ = tensors(generator)
    tree |= {"norm.running_mean": double(12), "norm.running_var": uniform(12) + 0.5, "norm.weight": double(12, seed=1)}
    draws, labels = uniform(5, 6), torch.tensor([0, 3, 1, 1, 2])
    codes = torch.distributions.Normal(0.0, 1.0).icdf(draws) if noise == "normal" else draws
    module = module_of(tree)
    inputs = torch.cat([F.one_hot(labels, CLASSES).double(), codes], 1)
    torch.testing.assert_close(generator(tree, labels, draws), module.eval()(inputs), rtol=0, atol=1e-9)
    made, statistics = generator.in_training(tree, labels, generator.codes(draws))
    torch.testing.assert_close(made, module.train()(inputs), rtol=0, atol=1e-9)
    torch.testing.assert_close(statistics["norm.running_mean"], module[1].running_mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(statistics["norm.running_var"], module[1].running_var, rtol=0, atol=1e-12)
    assert torch.equal(tree["norm.running_mean"], double(12))


def test_a_draw_of_zero_is_a_finite_normal_number():
    codes = replace(G, noise="normal").codes(torch.tensor([[0.0, 1 - 2.0**-53]], dtype=torch.float64))
    assert torch.isfinite(codes).all()
    assert codes[0, 0] < -8
    assert codes[0, 1] > 8


def test_the_first_weights_depend_on_the_seed_alone():
    (a, _), (b, _) = tensors(), tensors()
    assert_same_bits(a, b)
    assert a["in.weight"].abs().max() <= (CLASSES + 6) ** -0.5
    assert a["out.bias"].abs().max() <= 12**-0.5


# Its training on the server

HEADS = {
    "weight": double(3, CLASSES, WIDTH, seed=2),
    "bias": double(3, CLASSES, seed=3),
    "counts": torch.tensor([[5.0, 0, 1, 0], [3, 2, 0, 0], [0, 6, 0, 0]], dtype=torch.float64),
}
STUDENT = {"head.weight": double(CLASSES, WIDTH, seed=4), "head.bias": double(CLASSES, seed=5)}


def training(**changes):
    knobs = {"alpha_s": 0.7, "eta_s": 0.4, "beta_s": 0.3, "n_it": 5, "gen_batch": 8, "lr": 0.01}
    return GeneratorTraining(changes.pop("generator", G), **{**knobs, **changes})


def slow_loss(made, codes, labels, alpha_s=0.7, eta_s=0.4, beta_s=0.3):
    """Sample by sample and client by client."""
    counts, total = HEADS["counts"], 0.0
    for z, y in zip(made, labels.tolist(), strict=True):
        mixed = torch.zeros(CLASSES, dtype=torch.float64)
        for k in range(3):
            logits = HEADS["weight"][k] @ z + HEADS["bias"][k]
            share = counts[k, y] / counts[:, y].sum()
            total = total - alpha_s * share * logits.log_softmax(0)[y]
            mixed = mixed + share * logits
        p, q = mixed.softmax(0), (STUDENT["head.weight"] @ z + STUDENT["head.bias"]).softmax(0)
        total = total - beta_s * (p * (p / q).log()).sum()
    pairs = [
        (a - b).square().sum() / len(a) * (g - h).abs().sum() / len(g)
        for a, g in zip(codes, made, strict=True)
        for b, h in zip(codes, made, strict=True)
    ]
    return total / len(made) + eta_s * torch.exp(-sum(pairs) / len(pairs))


@pytest.mark.parametrize("knobs", [{}, {"beta_s": 0.0}, {"eta_s": 0.0}, {"alpha_s": 0.0}])
def test_the_servers_loss_and_its_gradient_match_the_loop(knobs):
    labels, codes = torch.tensor([0, 1, 1, 2, 0]), uniform(5, 6)
    made = double(5, WIDTH, seed=6).requires_grad_()
    ours = training(**knobs).loss(made, codes, labels, HEADS, STUDENT)
    theirs = slow_loss(made, codes, labels, **knobs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(v, made)[0] for v in (ours, theirs)), rtol=0, atol=1e-12)


def test_shares_of_a_label_add_up_to_one():
    shares = label_shares(HEADS["counts"])
    torch.testing.assert_close(shares.sum(0), torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    assert shares[:, 0].tolist() == [5 / 8, 3 / 8, 0.0]


def server_state(round_=2):
    setup = build("fedgen", **SMALL)
    tree, moments = tensors()
    extra = {"generator": tree, "adam": moments, "seed": {"value": torch.tensor(9)}}
    return setup.start.replace(params=STUDENT, extra=extra, round=round_)


def slow_training(state, steps, lr, batch=8, weight_decay=1e-2, fade=0.98):
    """PyTorch's layers and optimiser on the loop's loss; labels 0 and 1 are those with more than one sample."""
    module, draws = module_of(state.extra["generator"]), Streams(9).torch("server", state.round)
    optimiser = torch.optim.Adam(module.parameters(), lr=lr * fade**state.round, weight_decay=weight_decay)
    for _ in range(steps):
        labels = torch.tensor([0, 1])[torch.randint(2, (batch,), generator=draws)]
        codes = torch.rand(batch, 6, generator=draws, dtype=torch.float64)
        made = module.train()(torch.cat([F.one_hot(labels, CLASSES).double(), codes], 1))
        optimiser.zero_grad()
        slow_loss(made, codes, labels).backward()
        optimiser.step()
    return module


@pytest.mark.parametrize("knobs", [{}, {"weight_decay": 0.2}, {"weight_decay": 0.05, "fade": 0.5}])
def test_the_generator_is_trained_as_pytorch_would(knobs):
    state = server_state()
    after = training(**knobs)(state, Sums({"heads": HEADS})).extra
    module = slow_training(state, 5, 0.01, **knobs)
    own = module_of(after["generator"])
    for (name, ours), theirs in zip(own.state_dict().items(), module.state_dict().values(), strict=True):
        if name != "1.num_batches_tracked":
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10, msg=name)
    assert after["adam"]["steps"] == 5


def test_the_comparison_notices_a_changed_rate():
    state = server_state()
    after = training()(state, Sums({"heads": HEADS})).extra["generator"]
    other = slow_training(state, 5, 0.0101)
    assert not torch.allclose(after["out.weight"], other[3].weight, rtol=0, atol=1e-6)


def test_moments_go_on_where_they_stopped():
    """Two rounds from stored state are two rounds; forgotten moments are not."""
    state, sums = server_state(), Sums({"heads": HEADS})
    first = training()(state, sums)
    stored = first.restored({name: leaf.clone() for name, leaf in first.flat().items()}, 3)
    whole, resumed = (training()(each.replace(round=3), sums).extra for each in (first, stored))
    assert_same_bits(whole["generator"], resumed["generator"])
    forgotten = first.replace(extra={**first.extra, "adam": state.extra["adam"]}, round=3)
    assert_different(training()(forgotten, sums).extra["generator"], whole["generator"])


def test_labels_that_the_cohort_hardly_holds_are_never_asked_for():
    """Weights of the one-hot inputs of other labels only decay; with no label left nothing moves."""
    state = server_state()
    after = training()(state, Sums({"heads": HEADS})).extra["generator"]
    one = HEADS | {"counts": torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)}
    still = training()(state, Sums({"heads": one}))
    assert_same_bits(still.flat(), state.flat())
    asked = training(generator=G, alpha_s=0.0, eta_s=0.0, beta_s=0.0)(state, Sums({"heads": HEADS})).extra["generator"]
    assert torch.equal(after["in.weight"][:, 2:4], asked["in.weight"][:, 2:4])
    assert not torch.equal(after["in.weight"][:, :2], asked["in.weight"][:, :2])


def test_the_model_and_the_old_state_are_left_alone():
    state = server_state()
    before = {name: leaf.clone() for name, leaf in state.flat().items()}
    after = training()(state, Sums({"heads": HEADS}))
    assert_same_bits(state.flat(), before)
    assert_same_bits(after.params, state.params)


# The clients' terms


def view(z, labels, noise, head=None, round_=3, mask=None, present=(1, 0, 1, 1)):
    linear = LinearHead()
    params = STUDENT if head is None else head
    fields = {
        "params": params,
        "fixed": {},
        "head": linear,
        "features": z,
        "output": linear(params, {}, z),
        "labels": labels,
        "server": {"generator": TREE, "labels": {"present": torch.tensor(present, dtype=torch.bool)}},
        "round": round_,
        "mask": mask,
        "noise": noise,
    }
    return StepView(**{**dict.fromkeys(StepView.__dataclass_fields__), **fields})


def slow_terms(z, noise, labels, head, round_, per_sample, rate=0.98):
    """(Generated, GeneratedMatch) sample by sample with PyTorch's layers; the labels present are 0, 2 and 3."""
    module = module_of(TREE).eval()

    def made(label, codes):
        one_hot = torch.zeros(CLASSES, dtype=torch.float64)
        one_hot[label] = 1
        return module(torch.cat([one_hot, codes])[None])[0].detach()

    entropies, divergences = [], []
    for x, y, row in zip(z, labels.tolist(), noise, strict=True):
        for part in row[: per_sample * 7].split(7):
            label = (0, 2, 3)[int(part[0] * 3)]
            logits = head["head.weight"] @ made(label, part[1:]) + head["head.bias"]
            entropies.append(-logits.log_softmax(0)[label])
        p = (head["head.weight"] @ made(y, row[per_sample * 7 :]) + head["head.bias"]).softmax(0).detach()
        q = (head["head.weight"] @ x + head["head.bias"]).softmax(0)
        divergences.append((p * (p / q).log()).sum())
    fade = max(1e-4, 10 * rate**round_)
    return fade * sum(entropies) / len(entropies), fade * sum(divergences) / len(divergences)


LABELS = torch.tensor([0, 3, 3, 1, 2])


@pytest.mark.parametrize(("per_sample", "fade"), [(1, 0.98), (3, 0.98), (1, 0.6)])
def test_both_terms_and_their_gradients_match_the_loop(per_sample, fade):
    z = double(5, WIDTH, seed=7).requires_grad_()
    head = {name: leaf.clone().requires_grad_() for name, leaf in STUDENT.items()}
    terms = [kind(generate=G, per_sample=per_sample, fade=fade) for kind in (Generated, GeneratedMatch)]
    noise = uniform(5, terms[0].draws_per_sample, seed=8)
    assert noise.shape[1] == per_sample * 7 + 6
    slow = slow_terms(z, noise, LABELS, head, 3, per_sample, fade)
    for term, theirs in zip(terms, slow, strict=True):
        ours = term(view(z, LABELS, noise, head)).value
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
        leaves = [z, *head.values()]
        grads = (torch.autograd.grad(v, leaves, allow_unused=True, retain_graph=True) for v in (ours, theirs))
        for mine, other in zip(*grads, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None:
                torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_gradients_of_generated_features_reach_the_head_alone():
    z = double(5, WIDTH).requires_grad_()
    value = Generated(generate=G)(view(z, LABELS, uniform(5, 13))).value
    assert not value.requires_grad  # neither the features nor the generator
    head = {name: leaf.clone().requires_grad_() for name, leaf in STUDENT.items()}
    assert Generated(generate=G)(view(z, LABELS, uniform(5, 13), head)).value.requires_grad


@pytest.mark.parametrize("term", [Generated(generate=G, per_sample=2), GeneratedMatch(generate=G, per_sample=2)])
@pytest.mark.parametrize("junk", [1.0, 1e200, torch.nan, torch.inf])
@pytest.mark.parametrize("label", [0, -7, 999])
def test_padding_may_hold_anything(term, junk, label):
    """In features, logits, labels and draws; gradients are those of the logits and of the head."""

    def step(rows, labels, draws, mask=None):
        head = {name: leaf.clone().requires_grad_() for name, leaf in STUDENT.items()}
        seen = view(rows[:, :WIDTH], labels, draws, head, mask=mask)
        logits = rows[:, WIDTH:].clone().requires_grad_()
        value = term(replace(seen, output=replace(seen.output, logits=logits))).value
        leaves = [logits, *head.values()]
        return value.detach(), *torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)

    def padded(rows):
        return torch.cat([rows, torch.full((2, rows.shape[1]), junk, dtype=torch.float64)])

    rows, draws = double(5, WIDTH + CLASSES), uniform(5, term.draws_per_sample)
    exact = step(rows, LABELS, draws)
    labels, mask = torch.cat([LABELS, torch.tensor([label, label])]), torch.tensor([1.0, 1, 1, 1, 1, 0, 0])
    value, slope, *rest = step(padded(rows), labels, padded(draws), mask)
    for mine, other in zip((value, slope[:5], *rest), exact, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)
    assert (slope[5:] == 0).all()


@pytest.mark.parametrize("noise", ["uniform", "normal"])
def test_a_vmap_over_clients_is_a_loop(noise):
    generator = replace(G, noise=noise)
    terms = (Generated(generate=generator, per_sample=2), GeneratedMatch(generate=generator, per_sample=2))
    z, draws = double(3, 5, WIDTH), uniform(3, 5, terms[0].draws_per_sample)
    heads = {name: double(3, *leaf.shape, seed=9) for name, leaf in STUDENT.items()}
    labels = torch.stack([LABELS, LABELS.flip(0), LABELS.roll(1)])
    masks = torch.tensor([[1.0, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 1]])
    for term in terms:

        def value(head, x, y, u, mask, term=term):
            return term(view(x, y, u, head, mask=mask)).value

        both = torch.func.vmap(torch.func.grad_and_value(value))(heads, z, labels, draws, masks)
        for k in range(3):
            head = {name: leaf[k] for name, leaf in heads.items()}
            grads, alone = torch.func.grad_and_value(value)(head, z[k], labels[k], draws[k], masks[k])
            torch.testing.assert_close(both[1][k], alone, rtol=0, atol=1e-12)
            for name, leaf in grads.items():
                torch.testing.assert_close(both[0][name][k], leaf, rtol=0, atol=1e-12)


def test_labels_are_uniform_over_those_present():
    present = torch.tensor([False, True, False, True, True, False])
    draws = torch.arange(300, dtype=torch.float64) / 300
    assert torch.bincount(pick_labels(draws, present), minlength=6).tolist() == [0, 100, 0, 100, 100, 0]
    edges = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert pick_labels(edges, present).tolist() == [1, 4]
    assert pick_labels(edges, torch.tensor([False, False, True])).tolist() == [2, 2]
    assert (pick_labels(edges, torch.zeros(3, dtype=torch.bool)) < 3).all()


def test_strengths_fade_to_a_floor():
    assert faded(10.0, 0.98, 0) == 10
    assert faded(10.0, 0.98, 5) == pytest.approx(10 * 0.98**5)
    assert faded(10.0, 0.5, 2) == 2.5
    assert faded(10.0, 1.0, 10_000) == 10
    assert faded(10.0, 0.98, 10_000) == 1e-4
    assert faded(0.0, 0.98, 3) == 0


@pytest.mark.parametrize("kind", [Generated, GeneratedMatch])
def test_the_first_round_does_without(kind):
    z = double(5, WIDTH).requires_grad_()
    value = kind(generate=G)(view(z, LABELS, None, round_=0)).value
    assert value == 0
    assert (torch.autograd.grad(value, z)[0] == 0).all()
    with pytest.raises(Misconfigured, match="noise = 13"):
        kind(generate=G)(view(z, LABELS, None))


# Whole runs


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_both_terms_it_is_fedavg(norm):
    setting = {"model.norm": norm, "clients_per_round": 2, "rounds": 3}
    assert_same_run(train("fedgen", alpha_0=0.0, beta_0=0.0, **SMALL, **setting), train("fedavg", **setting))


def test_a_generator_that_nobody_uses_leaves_no_trace():
    unused = replace(fedgen(**SMALL), losses=fedavg().losses)
    ours, theirs = train(unused, rounds=3, **BATCH_NORM), train("fedavg", rounds=3, **BATCH_NORM)
    assert_same_bits(ours.state.params, theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)
    assert_different(ours.state.extra["generator"], ours.setup.start.extra["generator"])


def test_the_first_round_is_fedavg_and_the_second_is_not():
    for rounds, compare in ((1, assert_same_bits), (2, assert_different)):
        ours, theirs = train("fedgen", rounds=rounds, **SMALL), train("fedavg", rounds=rounds)
        compare(ours.state.params, theirs.state.params)


@pytest.mark.parametrize("knobs", [{"alpha_0": 0.0}, {"beta_0": 0.0}])
def test_a_term_of_strength_zero_is_absent(knobs):
    name = {"alpha_0": "loss_generated", "beta_0": "loss_generated_match"}[next(iter(knobs))]
    assert name not in train("fedgen", **SMALL, **knobs).history[-1]
    assert name in train("fedgen", **SMALL).history[-1]


def test_two_rounds_agree_with_a_plain_version():
    """Clients' second round written out, with the generator the server has trained after the first."""
    knobs = {"alpha_0": 0.5, "beta_0": 0.3, "gen_per_sample": 2}
    ran = train("fedgen", **SMALL, **knobs, **{"optimizer.lr": 0.02})
    first = train("fedgen", rounds=1, **SMALL, **knobs, **{"optimizer.lr": 0.02}).state
    samples, setup = ran.setup.problem.samples, ran.setup
    module = module_of(first.extra["generator"], NUM_CLASSES, 6, 12, DIM).eval()

    def made(labels, codes):
        return module(torch.cat([F.one_hot(labels, NUM_CLASSES).double(), codes], 1)).detach()

    models, sizes = [], []
    for task in tasks(setup, 1):
        noise = {tuple(b.indices.tolist()): b.noise for b in task.phases[0]}

        def loss(params, indices, noise=noise):
            z = plain.features(plain.MLP, params, {}, samples.inputs[indices], training=True)
            weight, bias = params["head.weight"], params["head.bias"]
            labels, draws = samples.labels[indices], noise[tuple(indices.tolist())]
            pairs = draws[:, :14].reshape(-1, 7)
            asked = (pairs[:, 0] * NUM_CLASSES).long()
            generated = F.cross_entropy(made(asked, pairs[:, 1:]) @ weight.T + bias, asked)
            target = (made(labels, draws[:, 14:]) @ weight.T + bias).softmax(1).detach()
            divergence = F.kl_div((z @ weight.T + bias).log_softmax(1), target, reduction="batchmean")
            own = F.cross_entropy(z @ weight.T + bias, labels)
            return own + 2 * 0.5 * 0.98 * generated + 0.3 * 0.98 * divergence

        models.append(plain.local_sgd(loss, first.params, [b.indices for b in task.phases[0]], 0.02, 0.9, 1e-3))
        sizes.append(len(task.indices))
    assert_close(ran.state.params, plain.weighted_mean(models, sizes), 1e-9)


def test_labels_that_nobody_in_the_federation_holds_are_known_from_the_start():
    data = vectors()
    few = data.train.labels < 3
    part = replace(data.train, inputs=data.train.inputs[few], labels=data.train.labels[few])
    ran = train("fedgen", replace(data, train=part), clients_per_round=1, rounds=1, **SMALL)
    assert ran.state.extra["labels"]["present"].tolist() == [True, True, True, False, False]


def test_the_server_receives_single_classifiers_and_counts():
    setup = build("fedgen", **SMALL)
    chosen = tasks(setup)
    sums = [train_client(setup.problem, setup.start, task, None, 0.05).sums for task in chosen]
    heads = reduce(Sums.__add__, sums)["heads"]
    assert heads["weight"].shape == (4, NUM_CLASSES, DIM)
    assert torch.equal(heads["counts"], torch.stack([task.counts for task in chosen]).double())
    torch.testing.assert_close(label_shares(heads["counts"]).sum(0), torch.ones(NUM_CLASSES).double())
    for task, weight in zip(chosen, heads["weight"], strict=True):
        delta = train_client(setup.problem, setup.start, task, None, 0.05).sums["delta"]["head.weight"] / task.weight
        torch.testing.assert_close(weight, setup.start.params["head.weight"] + delta, rtol=0, atol=1e-12)


def test_only_generator_and_labels_travel_down():
    assert fedgen(**SMALL).sent == ("generator", "labels")


def test_a_resumed_run_is_one_that_never_stopped(tmp_path):
    settings = {"rounds": 3, "clients_per_round": 2, **SMALL, **BATCH_NORM}
    whole = train("fedgen", **settings)
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    train("fedgen", directory=directory, **settings)
    (directory.checkpoints / "round-000003.safetensors").unlink()
    again = train("fedgen", directory=RunDirectory(tmp_path), **settings)
    assert_same_bits(again.state.flat(), whole.state.flat())
    assert again.history == whole.history


@pytest.mark.parametrize(
    "knobs",
    [
        {"noise": "normal"},
        {"beta_s": 0.5},
        {"gen_per_sample": 2},
        {"hid": 7},
        {"nz": 3},
        {"fade": 0.5},
        {"gen_weight_decay": 0.3},
    ],
)
def test_every_knob_changes_the_run(knobs):
    base = train("fedgen", rounds=2, **SMALL)
    other = train("fedgen", rounds=2, **{**SMALL, **knobs})
    assert math.isfinite(other.history[-1]["test_loss"])
    assert_different(base.state.params, other.state.params)


@pytest.mark.parametrize(
    "knobs",
    [
        {"alpha_0": -1.0},
        {"beta_0": float("nan")},
        {"beta_s": -0.5},
        {"lr": 0.0},
        {"gen_batch": 1},
        {"gen_per_sample": 0},
        {"nz": 0},
        {"hid": 0},
        {"n_it": 0},
        {"gen_weight_decay": -1e-2},
        {"gen_weight_decay": float("inf")},
        {"fade": 0.0},
        {"fade": 1.01},
    ],
)
def test_nonsense_is_refused(knobs):
    (name,) = knobs
    with pytest.raises(Misconfigured, match=f"{name}={knobs[name]}"):
        fedgen(**knobs)
