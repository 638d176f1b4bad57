import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Streams
from fedblade.heads import cosine, draw_simplex_etf, normalise, simplex_etf


def assert_simplex_etf(V, tolerance):
    classes = V.shape[1]
    target = (classes * torch.eye(classes) - 1).to(V.dtype) / (classes - 1)
    assert (V.T @ V - target).abs().max() < tolerance
    assert V.sum(1).abs().max() < tolerance * classes
    assert torch.linalg.matrix_rank(V, rtol=1e-4) == classes - 1


@settings(max_examples=30, deadline=None)
@given(classes=st.integers(2, 20), width=st.sampled_from(["C-1", "C", "C+1", "3C"]), seed=st.integers(0, 2**31))
def test_vectors_are_a_simplex_etf(classes, width, seed):
    dim = {"C-1": classes - 1, "C": classes, "C+1": classes + 1, "3C": 3 * classes}[width]
    assert_simplex_etf(simplex_etf(dim, classes, seed, dtype=torch.float64), 1e-12)
    single = simplex_etf(dim, classes, seed)
    assert single.dtype == torch.float32
    assert single.shape == (dim, classes)
    assert_simplex_etf(single, 2e-6)


def test_the_check_rejects_orthonormal_vectors():
    with pytest.raises(AssertionError):
        assert_simplex_etf(torch.eye(5, dtype=torch.float64), 1e-2)


def test_orientation_is_the_seeds():
    assert torch.equal(simplex_etf(6, 4, seed=1), simplex_etf(6, 4, seed=1))
    assert not torch.allclose(simplex_etf(6, 4, seed=1), simplex_etf(6, 4, seed=2))
    drawn = draw_simplex_etf(6, 4, Streams(1).numpy("etf"))
    assert torch.equal(drawn.float(), simplex_etf(6, 4, seed=1))


def test_every_orientation_has_its_chance():
    first = [simplex_etf(1, 2, seed)[0, 0].item() for seed in range(20)]
    assert {round(each) for each in first} == {-1, 1}


def test_impossible_frames_are_refused():
    with pytest.raises(Misconfigured, match="at least 2 classes, 1 given"):
        simplex_etf(4, 1)
    with pytest.raises(Misconfigured, match="needs at least 4 dimensions, 3 given"):
        simplex_etf(3, 5)


def test_normalise_survives_zero_vectors():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 5e-13]], dtype=torch.float64, requires_grad=True)
    unit = normalise(x)
    torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8], [0, 0], [0, 0.5]], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(unit.sum(), x)
    assert torch.isfinite(gradient).all()
    assert (gradient[1:] == 0).all()
    assert torch.autograd.gradcheck(normalise, x[:1].detach().requires_grad_())


def test_cosine_is_that_of_the_angle():
    a = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    b = torch.tensor([[0.0, 2.0], [2.0, 2.0], [1.0, 0.0]])
    torch.testing.assert_close(cosine(a, b), torch.tensor([0.0, 1.0, 0.0]))
