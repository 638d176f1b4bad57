"""Wrong input is answered with one line that says what was given, what was expected and what to do."""

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.diagnostics import Moments, effective_rank, nc1, nc2, spectrum

Z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("function", [spectrum, effective_rank, lambda z: nc1(z, LABELS), lambda z: nc2(z, LABELS)])
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (Z[0], r"features of shape \(4,\) given; \[samples, dim\] expected"),
        (Z[None], r"features of shape \(1, 6, 4\) given"),
        (Z.long(), r"features of dtype torch.int64 given; floating point expected"),
        (Z[:1], "1 samples given; at least 2 expected"),
        (Z[:0], "0 samples given; at least 2 expected"),
    ],
)
def test_feature_sets_without_a_spectrum(function, features, message):
    with pytest.raises(Misconfigured, match=message) as caught:
        function(features)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [nc1, nc2])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:4], r"labels of shape \(4,\) given; \[6\] expected"),
        (LABELS[:, None], r"labels of shape \(6, 1\) given"),
        (LABELS.float(), r"labels of dtype torch.float32 given; torch.int64 expected"),
        (LABELS - 1, "label -1 given; classes count from 0"),
    ],
)
def test_labels_that_are_none(function, labels, message):
    with pytest.raises(Misconfigured, match=message):
        function(Z, labels)


def test_moments_check_their_rows_under_vmap_too():
    with pytest.raises(Misconfigured, match=r"mask of shape \(5,\) given; \[6\] expected"):
        Moments.of(Z, LABELS, 3, torch.ones(5))
    with pytest.raises(Misconfigured, match=r"labels of shape \(5,\) given; \[6\] expected"):
        torch.func.vmap(lambda z: Moments.of(z, LABELS[:5], 3).tree())(torch.stack((Z, Z)))
