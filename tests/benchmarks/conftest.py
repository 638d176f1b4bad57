"""Whatever a benchmark runs here is tiny: these tests ask whether it works, never how fast it is."""

from dataclasses import dataclass

import pytest

from benchmarks.benchmark import Options
from benchmarks.digits_federation import DigitsFederation


@pytest.fixture
def tiny():
    return DigitsFederation(rounds=2, clients=4, batch_size=256)


@dataclass(frozen=True)
class AnyDevice(Options):
    """Lets a benchmark that needs a GPU run where there is none."""

    def require_cuda(self) -> None:
        """Nothing."""


@pytest.fixture
def any_device():
    return AnyDevice(repeat=1)
