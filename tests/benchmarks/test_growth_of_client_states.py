"""The row about many clients that keep a state on disk, with few of them."""

import pytest

from benchmarks.benchmark import Options
from benchmarks.workloads.growth import client_states


@pytest.mark.thorough
def test_both_sides_are_measured_and_fsyncs_are_counted():
    result = client_states.measure(Options(repeat=1), clients=6, rounds=2)
    medians = result.medians
    assert result.value == pytest.approx(medians["SCAFFOLD s/round"] / medians["FedAvg s/round"])
    calls = int(result.note.partition(" ")[0])
    assert 3 <= calls <= client_states.MOST_WAITS
