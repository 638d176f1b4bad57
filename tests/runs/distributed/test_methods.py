"""Every registered method gives on several ranks what it gives in one process."""

import json
from pathlib import Path

import pytest

from fedblade.core.registry import methods

pytestmark = pytest.mark.thorough
SCRIPT = Path(__file__).parents[2] / "support" / "rank_methods.py"
TOLERANCE = 1e-12
"""Of 1 + |x|, after a round from equal states and after the round that follows."""
FEW = ("ditto", "fedblade", "fedgen", "scaffold", "spherefed")
"""Client state, personal models, exchanges, rows of single clients, and fixed tensors that are calibrated."""


def check(findings, names):
    assert {(row["method"], row["order"]) for row in findings} == {(n, o) for n in names for o in ("any", "fixed")}
    for row in findings:
        assert row["all_reported"], row
        assert max(row["farthest"]) <= (TOLERANCE if row["order"] == "any" else 0.0), row
        assert row["order"] == "any" or (row["same_bits"] and row["same_history"]), row


def launch(torchrun, tmp_path, processes, cohort, names):
    torchrun(processes, SCRIPT, tmp_path, cohort, *names).done()
    return json.loads((tmp_path / "findings.json").read_text())


def test_two_ranks_with_five_clients_agree_with_one_process(torchrun, tmp_path):
    check(launch(torchrun, tmp_path, 2, 5, []), methods.names())


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.slow)], ids=["few", "all"])
def test_four_ranks_with_three_clients_agree_with_one_process(torchrun, tmp_path, names):
    """One rank has nothing to do."""
    check(launch(torchrun, tmp_path, 4, 3, names), names or methods.names())
