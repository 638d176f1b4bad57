import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.network_building import build_network
from fedblade.core.registry import heads as registry
from fedblade.core.streams import Streams
from fedblade.heads import (
    DualLinearHead,
    EtfDirectHead,
    FrozenLinearHead,
    LinearHead,
    OrthonormalHead,
    PrototypeHead,
    Scale,
    simplex_etf,
)

STREAMS = Streams(7)
DIM, CLASSES = 6, 3
WEIGHT, BIAS = (CLASSES, DIM), (CLASSES,)

CASES = {
    "linear without bias": (LinearHead(bias=False), {"head.weight": WEIGHT}, {}),
    "linear from an etf": (LinearHead(start="etf"), {"head.weight": WEIGHT, "head.bias": BIAS}, {}),
    "linear of directions": (LinearHead(bias=False, normalize=True), {"head.weight": WEIGHT}, {}),
    "frozen linear": (FrozenLinearHead(), {}, {"head.weight": WEIGHT, "head.bias": BIAS}),
    "orthonormal": (OrthonormalHead(), {}, {"head.weight": WEIGHT}),
    "etf": (EtfDirectHead(), {}, {"etf": (DIM, CLASSES)}),
    "etf of directions": (EtfDirectHead(normalize=True, length=100.0), {}, {"etf": (DIM, CLASSES)}),
    "prototypes": (PrototypeHead(), {"head.weight": WEIGHT, "scale": ()}, {}),
    "prototypes, fixed scale": (
        PrototypeHead(scale=Scale(30.0, learnable=False)),
        {"head.weight": WEIGHT},
        {"scale": ()},
    ),
    "dual": (
        DualLinearHead(),
        {"head.weight": WEIGHT, "head.bias": BIAS, "personal_head.weight": WEIGHT, "personal_head.bias": BIAS},
        {},
    ),
}
EVERY = pytest.mark.parametrize("head", [case[0] for case in CASES.values()], ids=list(CASES))


def features(batch=4, dim=DIM, seed=0):
    return torch.randn(batch, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def wide(tree):
    return {name: leaf.double() for name, leaf in tree.items()}


def tensors(head, dim=DIM, classes=CLASSES, seed=7):
    made = head.init(dim, classes, Streams(seed))
    return wide(made.params), wide(made.fixed)


def moved(tree, seed=1):
    """The same names with other values, so that no formula profits from how the tensors start."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 + torch.rand(leaf.shape, generator=generator, dtype=torch.float64) for name, leaf in tree.items()}


def slow(W, z, *, bias=None, unit=False, factor=1.0):
    """factor·(w_cᵀh_i + b_c), one sample and one class at a time."""
    rows = []
    for each in z:
        length = sum(x * x for x in each) ** 0.5 if unit else 1.0
        rows.append(
            torch.stack(
                [
                    factor * (sum(w * x for w, x in zip(W[c], each, strict=True)) / length)
                    + (0.0 if bias is None else bias[c])
                    for c in range(len(W))
                ]
            )
        )
    return torch.stack(rows)


def references(head, tree, z):
    """What `head` should return and its raw logits, from the table of heads."""
    bias = tree.get("head.bias")
    if isinstance(head, EtfDirectHead):
        V = tree["etf"].T
        return slow(V, z, unit=head.normalize, factor=head.length), slow(V, z)
    W = tree["head.weight"]
    if isinstance(head, OrthonormalHead):
        return slow(W, z, unit=True), slow(W, z)
    if isinstance(head, PrototypeHead):
        return slow(W, z, unit=True, factor=tree["scale"]), slow(W, z)
    unit = isinstance(head, LinearHead) and head.normalize
    return slow(W, z, bias=bias, unit=unit), slow(W, z, bias=bias)


@pytest.mark.parametrize(("head", "trained", "held"), list(CASES.values()), ids=list(CASES))
def test_what_is_trained_and_what_is_fixed(head, trained, held):
    made = head.init(DIM, CLASSES, STREAMS)
    for tree, shapes in ((made.params, trained), (made.fixed, held)):
        assert {name: tuple(leaf.shape) for name, leaf in tree.items()} == shapes
        assert all(leaf.dtype == torch.float32 and leaf.is_contiguous() for leaf in tree.values())
    again, other = head.init(DIM, CLASSES, STREAMS), head.init(DIM, CLASSES, Streams(8))
    for name, leaf in (made.params | made.fixed).items():
        assert torch.equal(leaf, (again.params | again.fixed)[name])
    assert any(not torch.equal(leaf, (other.params | other.fixed)[n]) for n, leaf in (made.params | made.fixed).items())


@pytest.mark.parametrize(
    "head", [*(case[0] for case in CASES.values()), LinearHead(normalize=True)], ids=[*CASES, "directions with bias"]
)
def test_logits_and_gradients_equal_a_slow_reference(head):
    params, fixed = (moved(tree, seed) for seed, tree in enumerate(tensors(head)))
    z = features()
    leaves = [leaf.requires_grad_() for leaf in (*params.values(), *fixed.values(), z)]
    output = head(params, fixed, z)
    assert output.projected is z
    assert head.project(params, z) is z
    weight = features(4, CLASSES, seed=5)
    pairs = zip(
        (output.logits, head.raw_logits(params, fixed, output)), references(head, params | fixed, z), strict=True
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        slopes = [
            torch.autograd.grad(
                (each * weight).sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for each in (ours, theirs)
        ]
        for mine, reference in zip(*slopes, strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


@EVERY
def test_gradients_reach_exactly_the_params(head):
    params, fixed = tensors(head)
    for leaf in params.values():
        leaf.requires_grad_()
    z = features().requires_grad_()
    logits = head(params, fixed, z).logits
    if isinstance(head, DualLinearHead):
        logits = head.personal_logits(params, z)
    gradients = torch.autograd.grad((logits * features(4, CLASSES, seed=3)).sum(), [*params.values(), z])
    assert all((each != 0).any() for each in gradients)
    assert not any(leaf.requires_grad for leaf in fixed.values())


@EVERY
def test_a_zero_feature_is_finite(head):
    params, fixed = tensors(head)
    z = torch.zeros(2, DIM, dtype=torch.float64, requires_grad=True)
    output = head(params, fixed, z)
    bias = (params | fixed).get("head.bias", torch.zeros(CLASSES, dtype=torch.float64))
    for logits in (output.logits, head.raw_logits(params, fixed, output)):
        torch.testing.assert_close(logits, bias.expand(2, CLASSES))
    for leaf in params.values():
        leaf.requires_grad_()
    leaves = [*params.values(), z]
    logits = head(params, fixed, z).logits
    for each in torch.autograd.grad(logits[:, 0].sum(), leaves, allow_unused=True, materialize_grads=True):
        assert torch.isfinite(each).all()


@pytest.mark.parametrize("head", [LinearHead(bias=False, normalize=True), OrthonormalHead(), PrototypeHead()])
def test_a_feature_without_direction_gets_no_gradient(head):
    params, fixed = tensors(head)
    z = torch.zeros(2, DIM, dtype=torch.float64, requires_grad=True)
    assert (torch.autograd.grad(head(params, fixed, z).logits[:, 0].sum(), z)[0] == 0).all()


@EVERY
def test_vmap_over_clients_equals_a_loop(head):
    z = torch.stack([features(seed=seed) for seed in range(3)])
    made = [tensors(head, seed=seed) for seed in range(3)]
    fixed = made[0][1]
    stacked = {name: torch.stack([params[name] for params, _ in made]) for name in made[0][0]}

    def value(params, client):
        output = head(params, fixed, client)
        total = output.logits.square().sum() + head.raw_logits(params, fixed, output).cos().sum()
        return total + (head.residual(params, client).sin().sum() if isinstance(head, DualLinearHead) else 0.0)

    slope = torch.func.grad(value, argnums=(0, 1))
    gradients, at_features = torch.func.vmap(slope)(stacked, z)
    for k in range(3):
        alone, at_feature = slope({name: leaf[k] for name, leaf in stacked.items()}, z[k])
        torch.testing.assert_close(at_features[k], at_feature)
        for name, each in alone.items():
            torch.testing.assert_close(gradients[name][k], each)


@pytest.mark.parametrize("head", [OrthonormalHead(), PrototypeHead(), EtfDirectHead(normalize=True)])
def test_cosines_do_not_see_the_length_of_features(head):
    params, fixed = tensors(head)
    z = features()
    stretched = z * torch.tensor([0.01, 1.0, 3.0, 1e4], dtype=torch.float64)[:, None]
    torch.testing.assert_close(head(params, fixed, stretched).logits, head(params, fixed, z).logits)


def start_of(head, seed=7, dim=DIM):
    example = torch.zeros(1, 4, dtype=torch.float64)
    return build_network(lambda: torch.nn.Linear(4, dim), head, CLASSES, example, Streams(seed))


@EVERY
def test_every_head_leaves_the_body_of_fedavg(head):
    _, reference, *_ = start_of(LinearHead())
    network, params, _, fixed = start_of(head)
    assert network.dim == DIM
    for name in ("body.weight", "body.bias"):
        assert torch.equal(params[name], reference[name])
    assert not params.keys() & fixed.keys()
    assert network.output(params, fixed, features()).logits.shape == (4, CLASSES)


@pytest.mark.parametrize("head", [FrozenLinearHead(), DualLinearHead(), LinearHead(bias=False)])
def test_affine_heads_start_as_fedavg_does(head):
    _, reference, *_ = start_of(LinearHead())
    _, params, _, fixed = start_of(head)
    tree = params | fixed
    assert torch.equal(tree["head.weight"], reference["head.weight"])
    if "head.bias" in tree:
        assert torch.equal(tree["head.bias"], reference["head.bias"])


def test_groups_find_the_tensors_of_each_head():
    network, params, *_ = start_of(DualLinearHead())
    assert network.names_in(("head",), params) == {"head.weight", "head.bias"}
    assert network.names_in(("personal_head",), params) == {"personal_head.weight", "personal_head.bias"}
    network, params, *_ = start_of(PrototypeHead())
    assert network.names_in(("body", "scale"), params) == set(params) - {"head.weight"}
    network, params, *_ = start_of(FrozenLinearHead())
    assert set(params) == {"body.weight", "body.bias"}


def test_a_linear_head_may_start_as_the_fixed_class_vectors():
    params = LinearHead(start="etf").init(DIM, CLASSES, STREAMS).params
    assert torch.equal(params["head.weight"], EtfDirectHead().init(DIM, CLASSES, STREAMS).fixed["etf"].T)
    assert (params["head.bias"] == 0).all()
    assert set(LinearHead(bias=False, start="etf").init(DIM, CLASSES, STREAMS).params) == {"head.weight"}


@pytest.mark.parametrize("dim", [CLASSES - 1, CLASSES, 5 * CLASSES])
def test_direct_class_vectors_are_a_simplex_etf(dim):
    V = EtfDirectHead().init(dim, CLASSES, STREAMS).fixed["etf"].double()
    target = (CLASSES * torch.eye(CLASSES, dtype=torch.float64) - 1) / (CLASSES - 1)
    torch.testing.assert_close(V.T @ V, target, rtol=0, atol=2e-6)
    assert V.sum(1).abs().max() < 2e-6
    assert torch.equal(V.float(), simplex_etf(dim, CLASSES, seed=7))


def test_neither_length_nor_normalisation_moves_the_class_vectors():
    plain, long = (
        head.init(DIM, CLASSES, STREAMS).fixed["etf"] for head in (EtfDirectHead(), EtfDirectHead(True, 9.0))
    )
    assert torch.equal(plain, long)


@settings(max_examples=25, deadline=None)
@given(classes=st.integers(1, 12), extra=st.integers(0, 9), seed=st.integers(0, 2**31))
def test_rows_are_orthonormal(classes, extra, seed):
    for head in (OrthonormalHead(), PrototypeHead()):
        made = head.init(classes + extra, classes, Streams(seed))
        W = (made.params | made.fixed)["head.weight"].double()
        torch.testing.assert_close(W @ W.T, torch.eye(classes, dtype=torch.float64), rtol=0, atol=2e-6)


def test_every_orientation_has_its_chance():
    for head in (OrthonormalHead(), PrototypeHead()):
        entries = []
        for seed in range(200):
            made = head.init(2, 1, Streams(seed))
            entries.append((made.params | made.fixed)["head.weight"][0])
        directions = torch.stack(entries)
        quadrants = (directions > 0).long() @ torch.tensor([1, 2])
        assert quadrants.bincount(minlength=4).min() > 30
        assert directions.mean(0).abs().max() < 0.2


def test_orthonormal_rows_and_prototypes_are_drawn_apart():
    rows = OrthonormalHead().init(DIM, CLASSES, STREAMS).fixed["head.weight"]
    prototypes = PrototypeHead().init(DIM, CLASSES, STREAMS).params["head.weight"]
    assert not torch.allclose(rows, prototypes)


def test_many_prototypes_are_unit_rows_of_orthonormal_columns():
    classes, dim = 40, 5
    P = PrototypeHead().init(dim, classes, STREAMS).params["head.weight"].double()
    torch.testing.assert_close(P.norm(dim=1), torch.ones(classes, dtype=torch.float64), rtol=0, atol=1e-6)
    # Unit rows P = D⁻¹Q with QᵀQ = I: row lengths d_c exist for which the columns are orthonormal again.
    products = torch.stack([P[:, i] * P[:, j] for i in range(dim) for j in range(i, dim)])
    wanted = torch.tensor([float(i == j) for i in range(dim) for j in range(i, dim)], dtype=torch.float64)
    squares = torch.linalg.lstsq(products, wanted).solution
    torch.testing.assert_close(products @ squares, wanted, rtol=0, atol=1e-6)
    gram = P.T @ P
    assert gram.diagonal().sum().item() == pytest.approx(classes, rel=1e-5)
    assert torch.linalg.eigvalsh(gram).min() > 0.25 * classes / dim


def test_the_scale_of_prototypes_is_clamped_and_counted():
    head = PrototypeHead()
    stacked = {"scale": torch.tensor([-1.0, 1.0, 0.0])}
    assert head.constrain(stacked)["count_scale_clamped"].tolist() == [1, 0, 1]
    torch.testing.assert_close(stacked["scale"], torch.tensor([1e-3, 1.0, 1e-3]))
    assert PrototypeHead(scale=Scale(30.0, learnable=False)).constrain({}) == {}
    assert head.init(DIM, CLASSES, STREAMS).params["scale"] == 1


def test_a_fixed_scale_multiplies_as_a_learnt_one_does():
    z = features()
    fixed, learnt = (PrototypeHead(scale=Scale(30.0, learnable=each)) for each in (False, True))
    torch.testing.assert_close(fixed(*tensors(fixed), z).logits, learnt(*tensors(learnt), z).logits)


def test_the_personal_head_starts_as_a_copy_of_its_own():
    params = DualLinearHead().init(DIM, CLASSES, STREAMS).params
    for name in ("weight", "bias"):
        generic, personal = params[f"head.{name}"], params[f"personal_head.{name}"]
        assert torch.equal(generic, personal)
        assert generic.data_ptr() != personal.data_ptr()


def test_the_personal_prediction_adds_a_residual():
    head, z = DualLinearHead(), features()
    params = moved(tensors(head)[0])
    generic = slow(params["head.weight"], z, bias=params["head.bias"])
    personal = slow(params["personal_head.weight"], z, bias=params["personal_head.bias"])
    torch.testing.assert_close(head(params, {}, z).logits, generic)
    torch.testing.assert_close(head.residual(params, z), personal)
    torch.testing.assert_close(head.personal_logits(params, z), generic + personal)


def test_generic_and_personal_head_learn_apart():
    head = DualLinearHead()
    params = {name: leaf.requires_grad_() for name, leaf in tensors(head)[0].items()}
    generic = [params["head.weight"], params["head.bias"]]
    personal = [params["personal_head.weight"], params["personal_head.bias"]]
    for logits, reached, spared in (
        (head(params, {}, features()).logits, generic, personal),
        (head.residual(params, features()), personal, generic),
    ):
        gradients = torch.autograd.grad(logits[:, 0].sum(), reached + spared, allow_unused=True)
        assert all(each is not None and (each != 0).any() for each in gradients[:2])
        assert gradients[2:] == (None, None)


def test_registry_knows_every_head():
    expected = {
        "linear": LinearHead(),
        "linear_frozen": FrozenLinearHead(),
        "ortho_frozen": OrthonormalHead(),
        "etf_direct": EtfDirectHead(),
        "proto_head": PrototypeHead(),
        "dual_linear": DualLinearHead(),
    }
    assert {*expected, "etf_projector"} <= set(registry.names())
    for name, head in expected.items():
        assert registry.get(name).make() == head
        assert registry.get(name).summary
    assert list(registry.get("linear").knobs()) == ["bias", "start", "normalize"]
    assert registry.get("etf_direct").make(normalize=True, length=100.0) == EtfDirectHead(True, 100.0)


def test_refusals_say_what_to_do():
    with pytest.raises(Misconfigured, match=r"unknown head.start 'eft'.*etf"):
        LinearHead(start="eft")
    with pytest.raises(Misconfigured, match=r"7 orthonormal class vectors need at least 7 dimensions, 6 given\. Widen"):
        OrthonormalHead().init(6, 7, STREAMS)
    for head in (EtfDirectHead(), LinearHead(start="etf")):
        with pytest.raises(Misconfigured, match="of 9 classes needs at least 8 dimensions, 6 given"):
            head.init(6, 9, STREAMS)
    for length in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(Misconfigured, match=f"length={length} must be positive and finite"):
            EtfDirectHead(length=length)


@pytest.fixture
def wide_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


STARTS = {name: case[0].init(DIM, CLASSES, STREAMS) for name, case in CASES.items()}


@pytest.mark.usefixtures("wide_default")
@pytest.mark.parametrize("name", list(CASES))
def test_initial_tensors_do_not_depend_on_the_default_dtype(name):
    made, expected = CASES[name][0].init(DIM, CLASSES, STREAMS), STARTS[name]
    for ours, theirs in ((made.params, expected.params), (made.fixed, expected.fixed)):
        assert ours.keys() == theirs.keys()
        assert all(leaf.dtype == torch.float32 and torch.equal(leaf, theirs[each]) for each, leaf in ours.items())
