"""The row about reports of many groups, on a few groups."""

import pytest

from benchmarks.benchmark import Options
from benchmarks.workloads.growth import report


def test_four_times_as_many_groups_are_compared():
    result = report.measure(Options(repeat=1), few=3, rounds=1)
    assert result.medians.keys() == {"12 groups s", "3 groups s"}
    assert result.value == pytest.approx(result.medians["12 groups s"] / result.medians["3 groups s"])
