"""Kernels of a GPU against plain layers in float64, client by client on its real samples alone.

Without a GPU they are interpreted, which shows whether they compute the right numbers, not whether a GPU builds them.
"""

import pytest
import torch
from torch.nn import functional

from fedblade.engines.layers._pointwise import patches, pointwise
from fedblade.runs._device import float32_products
from support.gpu import KERNEL_DEVICE, NEEDS_KERNELS

KINDS = {torch.float32: 3e-5, torch.bfloat16: 3e-2}
"""Types that the kernels take, and how far they may be from float64, of 1 + the largest number."""
SIZES = {
    "one_tile": (4, 2, 8, 3, 3),
    "many_rows": (16, 3, 5, 17, 13),
    "many_channels": (3, 5, 40, 2, 2),
    "one_pixel": (9, 2, 70, 1, 1),
    "one_client": (7, 1, 3, 4, 4),
}
INTERPRETED = KERNEL_DEVICE == "cpu"


def kinds_and_sizes(sizes):
    """Types and sizes; interpreted, some take long and are for `make test-slow`."""

    def is_long(kind, size):
        many = size in ("many_rows", "many_channels")
        return INTERPRETED and (many or size == "one_client" or (kind == torch.bfloat16 and size != "one_tile"))

    return [
        pytest.param(kind, size, id=f"{kind}-{size}", marks=[pytest.mark.slow] * is_long(kind, size))
        for kind in KINDS
        for size in sizes
    ]


ROWS = 700 if INTERPRETED else 9001
REAL = {"all": lambda b, k: b, "some": lambda b, k: max(2, b - k - 1), "few": lambda b, k: 3 if k else b}
MOMENTUM, EPS = 0.1, 1e-5


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 would hide what is compared here."""
    with float32_products(tf32=False):
        yield


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(size, real, kind):
    """Maps, mask [batch, clients] and which entries are real; the others hold large numbers."""
    batch, clients, per_client, height, width = SIZES[size]
    mask = torch.stack([torch.arange(batch) < REAL[real](batch, k) for k in range(clients)], 1)
    rows = mask.repeat_interleave(per_client, dim=1)[:, :, None, None]
    # A value whose type is coarse must be the same on both sides.
    maps = (drawn(batch, clients * per_client, height, width, seed=1) * 2 + 3).to(kind).double()
    return torch.where(rows, maps, torch.tensor(1e6, dtype=kind).double()), mask, rows


def normalised(maps, mask, weight, bias, mean, var, *, relu):
    """Batch normalisation of every client by torch, on its real samples; other samples are 0."""
    per_client = maps.shape[1] // mask.shape[1]
    parts = []
    for client, own in enumerate(mask.t()):
        channels = slice(client * per_client, (client + 1) * per_client)
        values = functional.batch_norm(
            maps[own, channels], mean[channels], var[channels], weight[channels], bias[channels], True, MOMENTUM, EPS
        )
        parts.append(torch.zeros_like(maps[:, channels]).index_put((own.nonzero()[:, 0],), values))
    whole = torch.cat(parts, 1)
    return whole.relu() if relu else whole


def sizes_of(mask):
    return mask.sum(0, dtype=torch.int32).to(KERNEL_DEVICE)


def fresh(channels, clients):
    """Running statistics before the first batch."""
    from fedblade.engines.layers._base import Running

    return Running(
        torch.zeros(channels).to(KERNEL_DEVICE),
        torch.ones(channels).to(KERNEL_DEVICE),
        torch.zeros(clients).long().to(KERNEL_DEVICE),
        MOMENTUM,
    )


def wide(maps, kind):
    return maps.to(KERNEL_DEVICE, kind).contiguous(memory_format=torch.channels_last).requires_grad_()


def close(found, expected, tolerance, what):
    gap = (found.detach().double().cpu() - expected.detach()).abs().max()
    assert gap <= tolerance * (1 + expected.detach().abs().max()), f"{what} differs by {gap:.1e}"


def gradients_close(found, expected, up, tolerance):
    for place, (own, other) in enumerate(zip(found, expected, strict=True)):
        # By norm, because rounding may carry a number over the ReLU's edge, and against what cancels in it.
        gap = (own.double().cpu() - other).norm() / (other.norm() + up.norm())
        assert gap <= tolerance, f"gradient {place} differs by {gap:.1e}"


class TestNorm:
    pytestmark = NEEDS_KERNELS

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize("real", REAL)
    @pytest.mark.parametrize(("kind", "size"), kinds_and_sizes(SIZES))
    def test_masked_normalisation(self, kind, size, real, relu):
        """Values, gradients and running statistics."""
        from fedblade.engines.layers._norm_functions import MaskedNorm

        maps, mask, rows = case(size, real, kind)
        channels = maps.shape[1]
        weight, bias = drawn(channels, seed=2).float().double(), drawn(channels, seed=3).float().double()
        up = torch.where(rows, drawn(*maps.shape, seed=4).to(kind).double(), 0.0)
        mean, var = torch.zeros(channels).double(), torch.ones(channels).double()
        leaves = [leaf.clone().requires_grad_() for leaf in (maps, weight, bias)]
        expected = normalised(leaves[0], mask, leaves[1], leaves[2], mean, var, relu=relu)
        mine = [wide(maps, kind), *(leaf.float().to(KERNEL_DEVICE).requires_grad_() for leaf in (weight, bias))]
        running = fresh(channels, mask.shape[1])
        found = MaskedNorm.apply(*mine, sizes_of(mask), running, EPS, relu)
        grads = torch.autograd.grad(found, mine, up.to(KERNEL_DEVICE, kind))
        assert found.dtype == kind
        close(torch.where(rows.to(KERNEL_DEVICE), found, 0.0), expected, KINDS[kind], "values")
        close(running.mean, mean, 1e-5, "running mean")
        close(running.var, var, 1e-4, "running variance")
        assert running.batches.tolist() == [1] * mask.shape[1]
        assert not torch.where(rows.to(KERNEL_DEVICE), 0.0, grads[0].float()).any(), "padding has a gradient"
        wanted = torch.autograd.grad(expected, leaves, up)
        gradients_close(grads, wanted, up, (20 if relu else 5) * KINDS[kind])

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_normalisation_by_running_statistics(self, kind, relu):
        from fedblade.engines.layers._norm_functions import Shape, applied, known_facts

        maps, mask, _ = case("many_rows", "all", kind)
        channels = maps.shape[1]
        mean, weight, bias = (drawn(channels, seed=seed) for seed in (2, 3, 4))
        var = drawn(channels, seed=5).square() + 0.1
        expected = functional.batch_norm(maps, mean, var, weight, bias, False, 0.0, EPS)
        facts = known_facts(*(each.float().to(KERNEL_DEVICE) for each in (mean, var, weight, bias)), EPS)
        found = applied(wide(maps, kind), facts, Shape.of(maps, mask.shape[1]), relu=relu)
        close(found, expected.relu() if relu else expected, KINDS[kind], "values")

    def test_a_client_without_a_real_sample_harms_nobody(self):
        from fedblade.engines.layers._norm_functions import MaskedNorm

        mask = torch.tensor([[1, 0], [1, 0], [1, 0]], dtype=torch.bool)
        maps = drawn(3, 4, 5, 5, seed=1)
        ones, zeros = torch.ones(4), torch.zeros(4)
        expected = normalised(
            maps[:, :2], mask[:, :1], *(each[:2].double() for each in (ones, zeros, zeros, ones)), relu=False
        )
        running = fresh(4, 2)
        found = MaskedNorm.apply(
            wide(maps, torch.float32),
            ones.to(KERNEL_DEVICE),
            zeros.to(KERNEL_DEVICE),
            sizes_of(mask),
            running,
            EPS,
            False,
        )
        close(found[:, :2], expected, 3e-5, "values")
        assert torch.isfinite(running.mean).all()
        assert torch.isfinite(running.var).all()

    @pytest.mark.parametrize("offset", [0.0, 1e3])
    def test_moments_do_not_cancel_far_from_zero(self, offset):
        """A mean a thousand deviations away leaves the variance right to float32's own rounding of the values."""
        from fedblade.engines.layers._norm_functions import facts_of

        maps = (drawn(8, 6, 9, 9, seed=1) + offset).float()
        facts = facts_of(
            wide(maps, torch.float32).detach(), torch.full((2,), 8, dtype=torch.int32, device=KERNEL_DEVICE),
            torch.ones(6, device=KERNEL_DEVICE), torch.zeros(6, device=KERNEL_DEVICE), None, 0.0,
        )  # fmt: skip
        values = maps.double().transpose(0, 1).flatten(1)
        close(facts[1], values.mean(1), 1e-6, "mean")
        close(facts[2], values.var(1, correction=0).rsqrt(), 1e-4, "1/deviation")


class TestDepthwise:
    pytestmark = NEEDS_KERNELS

    @pytest.mark.parametrize("norm", ["none", "norm", "norm_relu"])
    @pytest.mark.parametrize("stride", [1, 2])
    @pytest.mark.parametrize("real", ["all", "some"])
    @pytest.mark.parametrize(
        ("kind", "size"), kinds_and_sizes(["one_tile", "many_rows", "many_channels", "one_client"])
    )
    def test_depthwise_convolution(self, kind, size, real, stride, norm):
        """Alone and with the normalisation that it does while it reads: values, gradients, running statistics."""
        from fedblade.engines.layers._base import Norm
        from fedblade.engines.layers._depthwise import depthwise

        maps, mask, rows = case(size, real, kind)
        maps = torch.where(rows, maps, 0.0) if norm == "none" else maps
        channels, relu = maps.shape[1], norm == "norm_relu"
        filters = drawn(channels, 9, seed=5).float().double()
        weight, bias = drawn(channels, seed=2).float().double(), drawn(channels, seed=3).float().double()
        mean, var = torch.zeros(channels).double(), torch.ones(channels).double()
        leaves = [leaf.clone().requires_grad_() for leaf in (maps, filters, weight, bias)]
        read = leaves[0] if norm == "none" else normalised(leaves[0], mask, *leaves[2:], mean, var, relu=relu)
        expected = functional.conv2d(read, leaves[1].reshape(-1, 1, 3, 3), None, stride, 1, 1, channels)
        mine = [
            wide(maps, kind),
            *(leaf.float().to(KERNEL_DEVICE).requires_grad_() for leaf in (filters, weight, bias)),
        ]
        running = fresh(channels, mask.shape[1])
        first = None if norm == "none" else Norm(mine[2], mine[3], running, EPS, relu)
        found = depthwise(mine[0], mine[1], stride, sizes_of(mask), first)
        up = torch.where(rows, drawn(*expected.shape, seed=4).to(kind).double(), 0.0)
        close(
            torch.where(rows.to(KERNEL_DEVICE), found, 0.0), torch.where(rows, expected, 0.0), 3 * KINDS[kind], "values"
        )
        used = slice(2 if norm == "none" else 4)
        grads = torch.autograd.grad(found, mine[used], up.to(KERNEL_DEVICE, kind))
        gradients_close(grads, torch.autograd.grad(expected, leaves[used], up), up, 20 * KINDS[kind])
        assert not torch.where(rows.to(KERNEL_DEVICE), 0.0, grads[0].float()).any(), "padding has a gradient"
        if norm != "none":
            close(running.mean, mean, 1e-5, "running mean")
            close(running.var, var, 1e-4, "running variance")


class TestProducts:
    pytestmark = NEEDS_KERNELS

    @pytest.mark.parametrize(("left", "right"), [(5, 70), (70, 5), (20, 24), (16, 16), (32, 200)])
    @pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
    def test_products_over_rows(self, left, right, kind):
        """Within what TF32 and bfloat16 keep of a factor."""
        from fedblade.engines.layers._product_kernels import over_rows

        if INTERPRETED and kind == torch.bfloat16:
            pytest.skip("Triton's interpreter knows no products of bfloat16")
        a, b = (drawn(ROWS, 3 * width, seed=width).to(kind) for width in (left, right))
        expected = torch.einsum("rka,rkb->kab", *(each.double().unflatten(1, (3, -1)) for each in (a, b)))
        found = over_rows(a.to(KERNEL_DEVICE), b.to(KERNEL_DEVICE), 3)
        assert found.shape == expected.shape
        gap = (found.double().cpu() - expected).norm() / expected.norm()
        assert gap <= (1e-3 if kind == torch.float32 else 5e-3)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (5, 2), (3, 0), (2, 1)])
def test_a_convolution_of_patches_is_the_convolution(kernel, padding, stride):
    """On the CPU too: values, and the gradient of the weights."""
    inputs, weight = drawn(3, 4, 2, 7, 6, seed=1), drawn(3, 5, 2, kernel, kernel, seed=2).requires_grad_()
    maps = patches(inputs, (kernel, kernel), (stride, stride), (padding, padding))
    size = 2 * kernel * kernel
    found = pointwise(maps, functional.pad(weight.flatten(2), (0, -size % 4)))
    expected = torch.cat([functional.conv2d(inputs[k], weight[k], stride=stride, padding=padding) for k in range(3)], 1)
    up = drawn(*expected.shape, seed=3)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, weight, up)[0] for each in (found, expected)))
