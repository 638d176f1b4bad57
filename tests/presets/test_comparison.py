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
METHODS = ("FedAvg", "FedETF", "FedBlade", "FedBlade, balanced")


def table(page, heading):
    """The rows of the table whose header begins with these words, as lists of cells."""
    text = page[page.index(f"| {heading} |") :].partition("\n\n")[0]
    cells = [[cell.strip(" *").replace("−", "-") for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return cells[2:]


def near(cell, exact):
    """Whether a cell is this number, with the digits of the cell."""
    digits = len(cell.partition(".")[2])
    return float(cell) == pytest.approx(exact, abs=0.501 * 10**-digits)


def lines_of(preset):
    """What the paper has and the name of the run's folder, by method."""
    plan = plan_reproduction(f"{RESULTS / preset}")
    return {
        line.columns["method"]: (line.published, plan.planned(line.cells[0]).runs[0].folder.name) for line in plan.lines
    }


def history(folder):
    """The rounds of a kept run."""
    rows = [json.loads(row) for row in (QUEUE / folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 200
    return rows


@pytest.fixture(scope="module")
def lines():
    return lines_of("comparison.toml:strong")


@pytest.fixture(scope="module")
def curves(lines):
    """Test accuracy in every round, by method."""
    return {method: [row["test_accuracy"] for row in history(lines[method][1])] for method in METHODS}


def test_the_table_is_that_of_the_runs_of_the_paper_and_of_the_first_study(lines, curves):
    first = {row[0]: (row[1], row[3]) for row in table(FIRST, "method | ours, last 10")}
    rows = table(PAGE, "method | last 10 rounds")
    assert [row[0] for row in rows] == list(METHODS)
    for method, last, theirs, difference, final, reached, *before in rows:
        published, curve = lines[method][0], curves[method]
        assert near(last, statistics.mean(curve[-10:]))
        assert near(final, curve[-1])
        if published is None:
            assert (theirs, difference) == ("–", "–")
        else:
            assert theirs == f"{published.mean:.2f} ± {published.std:.2f}"
            assert near(difference, statistics.mean(curve[-10:]) - published.mean)
        assert int(reached) == next(at for at, value in enumerate(curve, start=1) if value >= 50)
        assert tuple(before) == first[method]
    assert f"moves by {statistics.stdev(curves['FedAvg'][-10:]):.1f} points" in " ".join(PAGE.split())


def test_the_table_of_windows_is_that_of_the_runs(curves):
    for window, *cells in table(PAGE, "mean of rounds"):
        first, last = map(int, window.split(" to "))
        means = [statistics.mean(curves[method][first - 1 : last]) for method in METHODS]
        exact = [*means, means[2] - means[1], means[3] - means[1]]
        assert all(near(cell, number) for cell, number in zip(cells, exact, strict=True)), window


def test_what_the_page_says_of_the_balanced_run_is_so(lines):
    text, rows = " ".join(PAGE.split()), history(lines["FedBlade, balanced"][1])
    weights = [row["lambda_eff"] for row in rows]
    assert f"Balanced, the weight is {statistics.mean(weights[:20]):.4f} in the mean of the first 20 rounds" in text
    assert f"never above {max(weights):.4f}" in text
    assert f"At round 20 the features have rank {rows[19]['erank_feature']:.0f}" in text
    assert f"and {rows[19]['nc1_feature_ratio']:.0%}".replace("%", " %") + " of their variance" in text
    assert f"at round 200 the rank is {rows[-1]['erank_feature']:.0f}" in text
    for method in ("FedBlade", "FedBlade, balanced"):
        spread = statistics.stdev(row["test_accuracy"] for row in history(lines[method][1])[-10:])
        assert f"either run moves by {spread:.1f} points" in text


def test_the_calibration_is_that_of_its_run_and_of_the_paper():
    ((published, folder),) = lines_of("comparison.toml:calibration").values()
    curve = [row["test_accuracy"] for row in history(folder)]
    ((_, last, theirs, difference, final),) = table(PAGE, "calibration")
    assert near(last, statistics.mean(curve[-10:]))
    assert theirs == f"{published.mean:.2f} ± {published.std:.2f}"
    assert near(difference, statistics.mean(curve[-10:]) - published.mean)
    assert near(final, curve[-1])
    assert f"moves by {statistics.stdev(curve[-10:]):.1f} points" in " ".join(PAGE.split())
    split = json.loads((QUEUE / folder / "partition.json").read_text(encoding="utf-8"))
    assert f"a client has {split['hardness']['effective_classes']:.1f} effective classes" in PAGE
    assert f"({split['hardness']['missing_classes']:.2f} in the mean)" in PAGE


def test_the_runs_with_all_clients_are_compared_with_their_own_table():
    published = {method: each.mean for method, (each, _) in lines_of("full_participation.toml:strong").items()}
    assert published == {"FedETF": 75.22, "FedBlade": 76.25, "FedAvg": 67.44}


def test_the_page_names_the_commit_of_every_run(lines):
    named = set(re.findall(r"`([0-9a-f]{7})`", PAGE))
    runs = [folder for _, folder in (*lines.values(), *lines_of("comparison.toml:calibration").values())]
    summaries = [json.loads((QUEUE / run / "summary.json").read_text(encoding="utf-8")) for run in runs]
    assert {summary["versions"]["commit"][:7] for summary in summaries} == named


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
