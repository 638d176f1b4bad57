"""Run directories below `tmp_path/runs`."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from report_runs import write_run

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that writes one run below `tmp_path/runs` and returns its folder."""
    return functools.partial(write_run, tmp_path / "runs")
