"""Functions for a user's own features and logits: the neural-collapse error and the calibration error."""

import math

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.diagnostics import expected_calibration_error, nc_error
from fedblade.heads import simplex_etf


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_nc_error_by_hand():
    z, labels = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]), torch.tensor([0, 0, 2, 6])
    found = nc_error(z, labels)  # cosines 0, -1 and 0 of three classes
    assert found["nc_error"] == pytest.approx((0.5**2 + 0.5**2 + 0.5**2) / 3)
    means = [torch.tensor(mean) - torch.tensor([2 / 3, 5 / 3]) for mean in ([3.0, 0.0], [0.0, 5.0], [-1.0, 0.0])]
    cosines = [float(means[i] @ means[j] / means[i].norm() / means[j].norm()) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert found["nc_error_centred"] == pytest.approx(sum((each + 0.5) ** 2 for each in cosines) / 3, rel=1e-5)


@pytest.mark.parametrize("classes", [2, 5])
def test_an_etf_has_no_error_and_equal_prototypes_the_largest(classes):
    labels = torch.arange(classes).repeat(3)
    etf = simplex_etf(9, classes, dtype=torch.float64).T[labels]
    assert nc_error(4 * etf, labels) == pytest.approx({"nc_error": 0.0, "nc_error_centred": 0.0}, abs=1e-12)
    same = nc_error(torch.full((len(labels), 9), 0.7), labels)
    assert same == pytest.approx(
        {"nc_error": (classes / (classes - 1)) ** 2, "nc_error_centred": 1 / (classes - 1) ** 2}
    )


def test_only_directions_of_prototypes_matter_unless_centred():
    z, labels = draw(12, 5), torch.arange(12) % 4
    stretched = nc_error(z * (1 + labels[:, None]), labels)
    assert stretched["nc_error"] == pytest.approx(nc_error(z, labels)["nc_error"])
    assert stretched["nc_error_centred"] != pytest.approx(nc_error(z, labels)["nc_error_centred"], rel=1e-3)
    assert nc_error(z + 50, labels)["nc_error_centred"] == pytest.approx(nc_error(z, labels)["nc_error_centred"])


def test_one_class_has_no_error():
    assert all(math.isnan(value) for value in nc_error(draw(4, 3), torch.zeros(4, dtype=torch.int64)).values())


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (draw(6), torch.zeros(6, dtype=torch.int64), r"\[samples, dim\] expected"),
        (draw(1, 3), torch.zeros(1, dtype=torch.int64), "at least 2 expected"),
        (draw(6, 3), torch.zeros(5, dtype=torch.int64), r"labels of shape \(5,\) given"),
        (draw(6, 3), torch.zeros(6), "torch.int64 expected"),
        (draw(6, 3), torch.full((6,), -1), "classes count from 0"),
    ],
)
def test_nc_error_refuses_what_has_no_classes(features, labels, message):
    with pytest.raises(Misconfigured, match=message):
        nc_error(features, labels)


def sure(*probabilities):
    """Logits of two classes whose first has these probabilities."""
    return torch.tensor([[math.log(p / (1 - p)), 0.0] for p in probabilities], dtype=torch.float64)


def test_calibration_error_by_hand():
    zeros = torch.zeros(4, dtype=torch.int64)
    half = torch.tensor([0, 1, 0, 1])
    assert expected_calibration_error(sure(0.75, 0.75, 0.75, 0.75), torch.tensor([0, 0, 0, 1])) == pytest.approx(0)
    assert expected_calibration_error(sure(0.9, 0.9, 0.9, 0.9), half) == pytest.approx(0.4)
    assert expected_calibration_error(sure(0.9, 0.9, 0.9, 0.9), zeros) == pytest.approx(0.1)
    # One bin: gaps of opposite sign cancel; two bins: they do not.
    assert expected_calibration_error(sure(0.75, 0.79), torch.tensor([0, 1])) == pytest.approx(0.27)
    assert expected_calibration_error(sure(0.6, 0.9), torch.tensor([0, 1])) == pytest.approx((0.4 + 0.9) / 2)


@pytest.mark.parametrize("classes", [3, 5, 15])
def test_a_confidence_on_the_edge_belongs_to_the_lower_bin(classes):
    edge = 1 / classes
    above = torch.zeros(1, classes, dtype=torch.float64)
    above[0, 0] = 1e-3
    logits = torch.cat((torch.zeros(1, classes, dtype=torch.float64), above))
    more = float(above.softmax(-1).max())
    wrong_then_right = torch.tensor([classes - 1, 0])
    apart = (abs(0 - edge) + abs(1 - more)) / 2
    assert expected_calibration_error(logits, wrong_then_right) == pytest.approx(apart)


def test_certainty_and_a_single_class_fall_in_the_last_bin():
    logits = torch.tensor([[1e4, 0.0], [1e4, 0.0]])
    assert expected_calibration_error(logits, torch.tensor([0, 0])) == 0
    assert expected_calibration_error(logits, torch.tensor([1, 1])) == 1
    assert expected_calibration_error(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)) == 0


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (draw(6), torch.zeros(6, dtype=torch.int64), r"logits of shape \(6,\)"),
        (draw(0, 3), torch.zeros(0, dtype=torch.int64), "at least 1 sample expected"),
        (draw(6, 3).long(), torch.zeros(6, dtype=torch.int64), "floating point"),
        (draw(6, 3), torch.zeros(5, dtype=torch.int64), r"labels of shape \(5,\) given"),
        (draw(6, 3), torch.full((6,), -1), "classes count from 0"),
        (draw(6, 3), torch.full((6,), 3), "label 3 given with logits of 3 classes; at most 2 expected"),
    ],
)
def test_calibration_error_refuses_what_is_no_prediction(logits, labels, message):
    with pytest.raises(Misconfigured, match=message):
        expected_calibration_error(logits, labels)
