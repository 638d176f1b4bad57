"""The page of the comparison: its numbers are those of the runs that are kept beside it, and of the paper."""

import json
import re
import statistics
from pathlib import Path

import pytest

from fedblade.hardness import measure
from fedblade.studies import plan_reproduction

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "comparison.md").read_text(encoding="utf-8")
FIRST = (RESULTS / "first-study.md").read_text(encoding="utf-8")
QUEUE = RESULTS / "queue"
METHODS = ("FedAvg", "FedETF", "FedBlade")


def table(page, heading):
    """The rows of the table whose header begins with these words, as lists of cells."""
    text = page[page.index(f"| {heading} |") :].partition("\n\n")[0]
    cells = [[cell.strip(" *").replace("−", "-") for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return cells[2:]


def near(cell, exact):
    """Whether a cell is this number, with the digits of the cell."""
    digits = len(cell.partition(".")[2])
    return float(cell) == pytest.approx(exact, abs=0.501 * 10**-digits)


@pytest.fixture(scope="module")
def lines():
    plan = plan_reproduction(f"{RESULTS / 'comparison.toml'}:strong")
    return {
        line.columns["method"]: (line.published, plan.planned(line.cells[0]).runs[0].folder.name) for line in plan.lines
    }


@pytest.fixture(scope="module")
def curves(lines):
    """Test accuracy in every round, by method."""
    found = {}
    for method in METHODS:
        rows = (QUEUE / lines[method][1] / "history.jsonl").read_text(encoding="utf-8").splitlines()
        found[method] = [json.loads(row)["test_accuracy"] for row in rows]
        assert len(found[method]) == 200
    return found


def test_the_table_is_that_of_the_runs_of_the_paper_and_of_the_first_study(lines, curves):
    first = {row[0]: (row[1], row[3]) for row in table(FIRST, "method | ours, last 10")}
    rows = table(PAGE, "method | last 10 rounds")
    assert [row[0] for row in rows] == list(METHODS)
    for method, last, theirs, difference, final, reached, *before in rows:
        published, curve = lines[method][0], curves[method]
        assert near(last, statistics.mean(curve[-10:]))
        assert theirs == f"{published.mean:.2f} ± {published.std:.2f}"
        assert near(difference, statistics.mean(curve[-10:]) - published.mean)
        assert near(final, curve[-1])
        assert int(reached) == next(at for at, value in enumerate(curve, start=1) if value >= 50)
        assert tuple(before) == first[method]
    assert f"moves by {statistics.stdev(curves['FedAvg'][-10:]):.1f} points" in " ".join(PAGE.split())


def test_the_table_of_windows_is_that_of_the_runs(curves):
    for window, *cells in table(PAGE, "mean of rounds"):
        first, last = map(int, window.split(" to "))
        means = [statistics.mean(curves[method][first - 1 : last]) for method in METHODS]
        assert all(near(cell, exact) for cell, exact in zip(cells, [*means, means[2] - means[1]], strict=True)), window


def test_every_kept_run_is_finished_small_and_has_its_split(lines):
    runs = [folder for folder in QUEUE.iterdir() if folder.name != "splits"]
    assert {lines[method][1] for method in METHODS} <= {run.name for run in runs}
    for run in runs:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        rows = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
        assert summary["status"] == "finished"
        assert len(rows) == summary["rounds"]
        assert summary["pictures"]["source"]
    assert all(file.stat().st_size < 1_000_000 for file in QUEUE.rglob("*") if file.is_file())


def test_the_split_of_the_page_is_the_one_that_was_trained_on():
    (file,) = (QUEUE / "splits").glob("458a48ca30e1f934.json")
    hardness = measure(json.loads(file.read_text(encoding="utf-8"))["counts"], 20)
    row = next(row for row in table(PAGE, "split") if row[0].endswith("(this page)"))
    _, sizes, classes, share, clients, lacking = row
    assert sizes == "500, 500, 500"
    assert near(classes, hardness.effective_classes)
    assert share == f"{hardness.largest_share:.0%}".replace("%", " %")
    assert near(clients, hardness.effective_clients)
    assert near(lacking, hardness.missing_classes)


def test_every_picture_and_file_of_the_page_is_there():
    for target in re.findall(r"\]\(([a-z][^):#]*)\)", PAGE):
        assert (RESULTS / target).exists(), target
