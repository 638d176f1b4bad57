"""Laws every loss obeys, and a small step to evaluate terms in."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedblade.core.streams import Streams
from fedblade.core.views import Head, StepView
from fedblade.heads import EtfProjectorHead

Loss = Callable[..., Tensor]


def value_and_gradient(loss: Loss, features: Tensor, *others: Tensor, **options: Tensor) -> tuple[Tensor, Tensor]:
    leaf = features.detach().requires_grad_()
    value = loss(leaf, *others, **options)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], tolerance: float = 1e-10) -> None:
    """Values and gradients agree, relative to the size of each tensor."""
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.isfinite(mine).all()
        assert (mine - other).norm() <= tolerance * (1e-3 + other.norm())


def assert_padding_is_harmless(loss: Loss, *rows: Tensor) -> None:
    """Rows appended with mask 0 change neither value nor gradient and receive none."""
    batch = len(rows[0])
    exact = value_and_gradient(loss, *rows, mask=None)
    for scale in (1.0, 1e200, torch.nan):
        padded = [_append_garbage(each, scale) for each in rows]
        mask = torch.cat((torch.ones(batch), torch.zeros(3)))
        for each in (mask, mask.bool()):
            value, gradient = value_and_gradient(loss, *padded, mask=each)
            assert_same((value, gradient[:batch]), exact, 1e-12)
            assert (gradient[batch:] == 0).all()


def _append_garbage(rows: Tensor, scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    if rows.is_floating_point():
        junk = scale * torch.randn((3, *rows.shape[1:]), generator=generator, dtype=rows.dtype)
        return torch.cat((rows, junk))
    return torch.cat((rows, torch.tensor([-7, 999, 0])))


def assert_vmap_is_a_loop(loss: Loss, *stacked: Tensor) -> None:
    """A leading client axis gives each client its own value and gradient, on both ways to get gradients."""
    loop = [value_and_gradient(loss, *client) for client in zip(*stacked, strict=True)]
    expected = tuple(torch.stack(parts) for parts in zip(*loop, strict=True))
    gradient, value = torch.func.vmap(torch.func.grad_and_value(loss))(*stacked)
    assert_same((value, gradient), expected)
    leaf = stacked[0].detach().requires_grad_()
    values = torch.func.vmap(loss)(leaf, *stacked[1:])
    assert_same((values.detach(), torch.autograd.grad(values.sum(), leaf)[0]), expected)


class Laws:
    value_and_gradient = staticmethod(value_and_gradient)
    same = staticmethod(assert_same)
    padding = staticmethod(assert_padding_is_harmless)
    vmap = staticmethod(assert_vmap_is_a_loop)


@pytest.fixture(scope="session")
def laws() -> Laws:
    return Laws()


@pytest.fixture(scope="session")
def double() -> Callable[..., Tensor]:
    """Normal float64 numbers of a shape, by seed."""

    def draw(*shape: int, seed: int = 0) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    return draw


@pytest.fixture(scope="session")
def step(double: Callable[..., Tensor]) -> Callable[..., StepView]:
    """One step of a client: 6 samples of 3 classes (one of them absent), 5 features, projected ETF head."""

    def make(
        features: Tensor | None = None, head: Head | None = None, has: Tensor | None = None, seed: int = 0
    ) -> StepView:
        head = head or EtfProjectorHead()
        tensors = head.init(5, 3, Streams(seed))
        params = {name: leaf.double() for name, leaf in tensors.params.items()}
        fixed = {name: leaf.double() for name, leaf in tensors.fixed.items()}
        z = double(6, 5, seed=seed) if features is None else features
        return StepView(
            params=params,
            anchor={name: leaf + 0.5 for name, leaf in params.items()},
            fixed=fixed,
            head=head,
            features=z,
            output=head(params, fixed, z),
            labels=torch.tensor([0, 1, 0, 1, 1, 0]),
            counts=torch.tensor([30, 7, 0]),
            server={
                "prototypes": {
                    "mean": double(3, 5, seed=seed + 50),
                    "has": torch.tensor([True, True, False]) if has is None else has,
                }
            },
            client={},
            round=0,
        )

    return make
