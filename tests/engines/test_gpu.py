"""What runs on a GPU alone: the kernels of masked normalisation, and steps that are captured and replayed."""

import importlib.util

import pytest
import torch
from conformance import LR, check_two_rounds
from small_federation import BATCH_NORM, CNN, build, images, tasks

from fedblade.core.outcome import train_client
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.engines import _slots
from fedblade.engines.layers._batch_norm import _MaskedNorm

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton, which has the kernels"),
]
MILD = {"lambda_decorr": 1e-4}
METHODS = {"fedavg": {}, "scaffold": {}, "fedblade": MILD, "fedntd": {}}
KINDS = {torch.float32: 3e-5, torch.bfloat16: 3e-2}
"""Types that the kernels take, and how far they may be from float64, of 1 + the largest number."""


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 would hide what is compared here."""
    was = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = was


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(maps, mask, weight, bias, eps, *, relu):
    """The form without kernels, in float64: values, mean, unbiased variance."""
    channels, height, width = maps.shape[1:]
    rows = mask.repeat_interleave(channels // mask.shape[1], dim=1).to(maps.dtype)
    count = rows.sum(0) * height * width
    normal, mean, var = _MaskedNorm.apply(maps, rows[:, :, None, None], count, eps)
    outputs = normal * weight[:, None, None] + bias[:, None, None]
    return outputs.relu() if relu else outputs, mean, var * (count / (count - 1).clamp(min=1))


SIZES = {
    "one_tile": (4, 2, 8, 3, 3),
    "many_rows": (16, 3, 5, 17, 13),
    "many_channels": (3, 5, 40, 2, 2),
    "one_pixel": (9, 2, 70, 1, 1),
    "one_client": (7, 1, 3, 4, 4),
}
REAL = {"all": lambda b, k: b, "some": lambda b, k: max(2, b - k - 1), "few": lambda b, k: 3 if k else b}


def close(found, expected, tolerance, what):
    gap = (found.double().cpu() - expected).abs().max()
    assert gap <= tolerance * (1 + expected.abs().max()), f"{what} differs by {gap:.1e}"


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_kernels_agree_with_the_plain_form(kind, size, real, relu):
    """Values, gradients and moments; samples that are not real hold large numbers."""
    from fedblade.engines.layers._norm_kernels import MaskedNorm

    batch, clients, per_client, height, width = SIZES[size]
    channels = clients * per_client
    mask = torch.stack([torch.arange(batch) < REAL[real](batch, k) for k in range(clients)], 1)
    rows = mask.repeat_interleave(per_client, dim=1)[:, :, None, None]
    # A value whose type is coarse must be the same on both sides, and none may lie on the ReLU's edge.
    maps = (drawn(batch, channels, height, width, seed=1) * 2 + 3).to(kind).double()
    maps = torch.where(rows, maps, torch.tensor(1e6, dtype=kind).double())
    weight, bias = drawn(channels, seed=2).float().double(), drawn(channels, seed=3).float().double()
    up = torch.where(rows, drawn(batch, channels, height, width, seed=4).to(kind).double(), 0.0)
    leaves = [leaf.clone().requires_grad_() for leaf in (maps, weight, bias)]
    expected, mean, var = plain(leaves[0], mask, leaves[1], leaves[2], 1e-5, relu=relu)
    wanted = torch.autograd.grad(expected, leaves, up)
    mine = [maps.to("cuda", kind), *(leaf.float().cuda() for leaf in (weight, bias))]
    mine[0] = mine[0].contiguous(memory_format=torch.channels_last)
    mine = [leaf.requires_grad_() for leaf in mine]
    found, own_mean, own_var = MaskedNorm.apply(mine[0], mask.cuda(), mine[1], mine[2], 1e-5, relu)
    grads = torch.autograd.grad(found, mine, up.to("cuda", kind))
    tolerance = KINDS[kind]
    assert found.dtype == kind
    close(torch.where(rows.cuda(), found, 0.0), torch.where(rows, expected.detach(), 0.0), tolerance, "values")
    close(own_mean, mean, 1e-5, "mean")
    close(own_var, var, 1e-4, "variance")
    assert not torch.where(rows.cuda(), 0.0, grads[0].float()).any(), "padding has a gradient"
    for name, own, other in zip(("inputs", "weight", "bias"), grads, wanted, strict=True):
        # By norm, because rounding may carry a number over the ReLU's edge, and against what cancels in it.
        gap = (own.double().cpu() - other).norm() / (other.norm() + up.norm())
        assert gap <= (20 if relu else 5) * tolerance, f"gradient of {name} differs by {gap:.1e}"


def test_kernels_survive_a_client_without_a_real_sample():
    from fedblade.engines.layers._norm_kernels import MaskedNorm

    mask = torch.tensor([[1, 0], [1, 0], [1, 0]], dtype=torch.bool)
    maps = drawn(3, 4, 5, 5, seed=1)
    expected, mean, _ = plain(
        maps[:, :2], mask[:, :1], torch.ones(2).double(), torch.zeros(2).double(), 1e-5, relu=False
    )
    wide = maps.float().cuda().contiguous(memory_format=torch.channels_last)
    ones, zeros = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    found, own_mean, own_var = MaskedNorm.apply(wide, mask.cuda(), ones, zeros, 1e-5, False)
    close(found[:, :2], expected, 3e-5, "values")
    close(own_mean[:2], mean, 1e-5, "mean")
    assert torch.isfinite(own_var).all()


def make(method, data=None, *, dtype="float64", **overrides):
    setup = build(method, data, device="cuda", dtype=dtype, **METHODS[method], **overrides)
    engine = engines.get("stacked").make(setup.problem)
    assert engine._slots is not None, "one captured step serves these methods"
    return engine, setup


@pytest.mark.parametrize(
    "overrides", [BATCH_NORM, {}, {"persist": True, "clip": 0.5}], ids=["norm", "plain", "persist"]
)
@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_with_the_clients_one_by_one(method, overrides, monkeypatch):
    """In float64, with four clients taking turns in two slots, over two rounds from equal states."""
    monkeypatch.setattr(_slots, "MOST_SLOTS", 2)
    check_two_rounds(*make(method, **overrides))


@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_on_augmented_images(method):
    check_two_rounds(*make(method, images(60, 10), **CNN, **{"dataset.augment": "crop_flip"}))


BOUND = 2e-4
"""Distance of the moves of a short round in float32, relative to their length."""


@pytest.mark.parametrize("model", [BATCH_NORM, CNN], ids=["mlp", "cnn"])
@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_in_float32_within_its_arithmetic(method, model):
    data = images(60, 10) if model is CNN else None
    engine, setup = make(method, data, dtype="float32", **model, **{"local.epochs": 1})
    cohort = tasks(setup)
    outcome = engine.train(setup.start, iter(cohort), MemoryStore(), LR, lambda client: None)
    expected = [train_client(setup.problem, setup.start, task, None, LR).sums["delta"] for task in cohort]
    for name in expected[0]:
        wanted = sum(each[name].double() for each in expected)
        gap = (outcome.sums["delta"][name].double() - wanted).norm() / (1e-3 + wanted.norm())
        assert gap <= BOUND, f"{name} differs by {gap:.1e}"


def test_two_rounds_of_one_shape_share_a_capture():
    engine, setup = make("fedavg", **BATCH_NORM)
    check_two_rounds(engine, setup)
    assert len(engine._slots._slots) == 1
