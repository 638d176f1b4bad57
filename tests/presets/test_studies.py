"""Our own studies: their grids can be planned, and the numbers of their pages are those of the summaries beside."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from fedblade.experiment._reproduce import plan_reproduction

RESULTS = Path(__file__).parents[2] / "docs" / "results"
GRIDS = [
    f"{path}:{name}"
    for path in sorted(RESULTS.glob("*.toml"))
    for name in tomllib.loads(path.read_text(encoding="utf-8"))["presets"]
]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda each: each.rpartition("/")[2])
def test_every_grid_can_be_planned(grid, tmp_path):
    plan = plan_reproduction(grid, out=tmp_path)
    assert plan.runs
    assert {run.config.general.tf32 for run in plan.runs} == {True}


def test_the_table_of_the_first_study_is_that_of_its_runs():
    page = (RESULTS / "first-study.md").read_text(encoding="utf-8")
    names = {"FedAvg": "fedavg", "FedDecorr": "feddecorr", "FedETF": "fedetf", "FedBlade": "fedblade"}
    names["FedBlade, balanced"] = "fedblade-balanced"
    plan = plan_reproduction(f"{RESULTS / 'first-study.toml'}:cifar10")
    published = {line.columns["method"]: line.published for line in plan.lines}
    for method, file in names.items():
        (row,) = re.findall(rf"^\| {method} \| (.+) \|$", page, re.MULTILINE)
        ours, paper, difference, final, _ = (cell.strip(" *").replace("−", "-") for cell in row.split(" | "))
        summary = json.loads((RESULTS / "first-study" / f"cifar10-{file}-seed1024.json").read_text(encoding="utf-8"))
        # Two digits of a mean over ten: half a hundredth is rounded either way.
        assert float(ours) == pytest.approx(summary["last10_accuracy"], abs=0.00501)
        assert float(final) == summary["final_accuracy"]
        theirs = published[method]
        if theirs is None:
            assert (paper, difference) == ("–", "–")
        else:
            assert paper == f"{theirs.mean:.2f} ± {theirs.std:.2f}"
            assert float(difference) == pytest.approx(summary["last10_accuracy"] - theirs.mean, abs=0.00501)
