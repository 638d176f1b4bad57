"""Growth with classes and with personal models, on tiny sizes: the value is that of the sides."""

import math

import pytest

from benchmarks.benchmark import Options
from benchmarks.workloads.growth import many_classes, personal_models

ONCE = Options(repeat=1)


@pytest.mark.parametrize("row", [many_classes.measure_start, many_classes.measure_round])
def test_many_classes(row):
    result = row(ONCE, few=3, many=1100)
    (large, large_seconds), (small, small_seconds) = result.medians.items()
    assert large.startswith("1,100 classes")
    assert small.startswith("3 classes")
    assert result.value == pytest.approx(large_seconds / small_seconds)
    assert 0 < result.value < math.inf


def test_seconds_of_some_work():
    made = []
    result = many_classes.measure_seconds(Options(repeat=2), lambda: made.append(1))
    assert len(made) == len(result.values) == 2
    assert result.value >= 0


def test_personal_models():
    result = personal_models.measure(ONCE, few=4, many=8)
    assert result.value == pytest.approx(result.medians["8 clients s"] / result.medians["4 clients s"])
    assert result.value > 0
