"""Our own studies: their grids can be planned, and the numbers of their pages are those of the files beside them."""

import csv
import json
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from fedblade.studies import plan_reproduction

RESULTS = Path(__file__).parents[2] / "docs" / "results"
STUDY = RESULTS / "first-study"
PAGE = (RESULTS / "first-study.md").read_text(encoding="utf-8")
GRIDS = [
    f"{path}:{name}"
    for path in sorted(RESULTS.glob("*.toml"))
    for name in tomllib.loads(path.read_text(encoding="utf-8"))["presets"]
]
CENTRAL = {
    "FedAvg": "fedavg",
    "FedDecorr": "feddecorr",
    "FedETF": "fedetf",
    "FedBlade": "fedblade",
    "FedBlade, balanced": "fedblade-balance-0.1",
}
OTHERS = {"FedDr+": "feddr-plus", "FedGELA": "fedgela"}
METHODS = CENTRAL | OTHERS
SMALL = (
    "fedetf", "fedblade-weight-0", "fedblade-no-pba", "fedblade-weight-0.001", "fedblade", "fedblade-weight-0.01",
    "fedblade-weight-0.05", "fedblade-balance-0.03", "fedblade-balance-0.1", "fedblade-balance-0.3",
    "fedblade-balance-1",
)  # fmt: skip
"""The runs with a small network, in the order of the page."""
PAIRS = ["α = 0.05: FedETF", "FedBlade", "α = 0.5: FedETF", "FedBlade"]
SEEDS = (1024, 2025, 4096)
MEASURES = {
    "effective rank of features": "erank_feature",
    "the same, standardised": "erank_feature_correlation",
    "effective rank after the projection": "erank_proj",
    "share of variance within classes": "nc1_feature_ratio",
    "length of a client's update": "drift_norm",
    "cosine between clients' updates": "update_cosine",
    "alignment, classes a client has": "alignment_observed",
    "accuracy, %": "test_accuracy",
}


def lines(name):
    with (STUDY / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


VALUES = lines("values.csv")


def run(name, rounds, seed=1024):
    """Evaluated rounds of a run, and their lines."""
    full = f"{name}-r{rounds}-seed{seed}"
    found = [line for line in VALUES if line["run"] == full]
    assert len({line["round"] for line in found}) == len(found) > 0, f"{full} is one run"
    return {int(line["round"]): line for line in found}


def cifar10(method):
    return run(f"cifar10-{METHODS[method]}", 60 if method in OTHERS else 200)


def tiny(method):
    return run(f"tiny-{METHODS[method]}", 46)


def milder(method):
    return run(f"cifar10-alpha-0.5-{METHODS[method]}", 60)


def accuracies(found, first, last):
    return [float(line["test_accuracy"]) for at, line in found.items() if first <= at <= last]


def last10(found):
    return statistics.mean(accuracies(found, 0, max(found))[-10:])


def near(cell, exact):
    """Whether a cell is this number with its own digits; half a last digit is rounded either way."""
    digits = len(cell.partition(".")[2])
    return float(cell) == pytest.approx(exact, abs=0.501 * 10**-digits)


def table(heading):
    """Header and rows of the table whose header begins with these words."""
    text = PAGE[PAGE.index(f"| {heading} |") :].partition("\n\n")[0]
    cells = [[cell.strip(" *").replace("−", "-") for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return cells[0], cells[2:]


def published(preset):
    plan = plan_reproduction(f"{RESULTS / 'first-study.toml'}:{preset}")
    return {line.columns["method"]: line.published for line in plan.lines}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda each: each.rpartition("/")[2])
def test_every_grid_can_be_planned(grid, tmp_path):
    plan = plan_reproduction(grid, out=tmp_path)
    assert plan.runs
    assert {run.config.general.tf32 for run in plan.runs} == {True}


def test_summaries_and_curves_are_of_the_same_runs():
    summaries = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in STUDY.glob("*.json")}
    assert summaries.keys() == {line["run"] for line in VALUES}
    for full, summary in summaries.items():
        name, rounds, seed = full.rsplit("-", 2)
        found = run(name, int(rounds.removeprefix("r")), int(seed.removeprefix("seed")))
        assert summary["seed"] == int(seed.removeprefix("seed"))
        assert max(found) == summary["rounds"] == int(rounds.removeprefix("r"))
        assert float(found[max(found)]["test_accuracy"]) == summary["final_accuracy"]
        assert last10(found) == pytest.approx(summary["last10_accuracy"])


def first_round(found, threshold):
    """As the protocol has it: the first evaluated round at or above the threshold, or the last with a plus."""
    reached = [at for at, line in found.items() if float(line["test_accuracy"]) >= threshold]
    return str(min(reached)) if reached else f"{max(found)}+"


def test_the_table_of_cifar_10_is_that_of_its_runs_and_of_the_paper():
    paper = published("cifar10")
    _, rows = table("method | ours, last 10")
    assert [row[0] for row in rows] == list(CENTRAL)
    for method, ours, theirs, difference, final, reached in rows:
        found = cifar10(method)
        assert near(ours, last10(found))
        assert near(final, *accuracies(found, 200, 200))
        assert reached == first_round(found, 50)
        if paper[method] is None:
            assert (theirs, difference) == ("–", "–")
        else:
            assert theirs == f"{paper[method].mean:.2f} ± {paper[method].std:.2f}"
            assert near(difference, last10(found) - paper[method].mean)


def test_the_table_of_the_first_60_rounds():
    _, rows = table("CIFAR-10, first 60 rounds")
    assert [row[0] for row in rows] == list(METHODS)
    for method, window, last in rows:
        assert near(window, statistics.mean(accuracies(cifar10(method), 42, 60)))
        assert near(last, *accuracies(cifar10(method), 60, 60))


def test_the_table_of_tiny_imagenet_is_that_of_its_runs_and_of_the_paper():
    paper = published("tiny")
    _, rows = table("method | 20 % reached in round, ours")
    assert [row[0] for row in rows] == list(METHODS)
    for method, ours, theirs, last, final in rows:
        found = tiny(method)
        assert ours == first_round(found, 20)
        assert theirs == (f"{paper[method].mean:g}" if method in paper else "–")
        assert near(last, last10(found))
        assert near(final, *accuracies(found, 46, 46))


def test_the_table_of_both_splits_is_that_of_the_runs():
    pairs = [of(method) for of in (cifar10, milder) for method in ("FedETF", "FedBlade")]
    _, rows = table("mean of rounds")
    for window, *cells in rows:
        first, last = map(int, window.split(" to "))
        means = [statistics.mean(accuracies(found, first, last)) for found in pairs]
        expected = [*means[:2], means[1] - means[0], *means[2:], means[3] - means[2]]
        assert all(near(cell, exact) for cell, exact in zip(cells, expected, strict=True)), window
    paper = published("milder")
    assert f"{paper['FedBlade'].mean:.2f} and {paper['FedETF'].mean:.2f} after 200 rounds" in " ".join(PAGE.split())


@pytest.mark.parametrize(
    ("runs", "heading"),
    [
        ([tiny(name) for name in CENTRAL], "Tiny-ImageNet, round"),
        ([cifar10(name) for name in CENTRAL], "CIFAR-10, round"),
        ([of(name) for of in (cifar10, milder) for name in ("FedETF", "FedBlade")], "both splits, round"),
    ],
    ids=["tiny", "cifar10", "splits"],
)
def test_the_tables_of_diagnostics_are_those_of_the_runs(runs, heading):
    header, rows = table(heading)
    assert header[2:] == (list(CENTRAL) if len(runs) == len(CENTRAL) else PAIRS)
    at = 0
    for first, name, *cells in rows:
        at = int(first or at)
        for found, cell in zip(runs, cells, strict=True):
            assert near(cell, float(found[at][MEASURES[name]])), f"{name}, round {at}"


def test_the_table_of_shares_follows_from_the_weights_of_the_balanced_runs():
    header, rows = table("share of the supervised gradient, rounds")
    for (_, *cells), of in zip(rows, (cifar10, tiny), strict=True):
        for window, cell in zip(header[1:], cells, strict=True):
            first, last = map(int, window.split(" to "))
            found = of("FedBlade, balanced").items()
            weights = [float(line["lambda_eff"]) for at, line in found if first <= at <= last]
            if cell == "–":
                assert not weights
            else:
                assert near(cell.removesuffix(" %"), 100 * 0.1 * 0.005 / statistics.median(weights))


def test_the_table_of_the_small_network_is_that_of_its_runs():
    _, rows = table("small network")
    for name, (_, last, final, rank, standardised, within) in zip(SMALL, rows, strict=True):
        found = run(f"small-{name}", 40)
        assert near(last, last10(found))
        assert near(final, *accuracies(found, 40, 40))
        assert near(rank, float(found[40]["erank_feature"]))
        assert near(standardised, float(found[40]["erank_feature_correlation"]))
        assert near(within, float(found[40]["nc1_feature_ratio"]))


def test_the_table_of_seeds_is_that_of_the_runs():
    names = (
        "fedetf",
        "fedblade-weight-0",
        "fedblade-weight-0.001",
        "fedblade",
        "fedblade-balance-0.1",
        "fedblade-primal",
    )
    header, rows = table("last 10 of 40 rounds")
    assert header[1:-1] == [f"seed {seed}" for seed in SEEDS]
    for name, (_, *cells, mean) in zip(names, rows, strict=True):
        exact = [last10(run(f"small-{name}", 40, seed)) for seed in SEEDS]
        assert all(map(near, cells, exact)), name
        assert all(map(near, mean.split(" ± "), (statistics.mean(exact), statistics.stdev(exact)))), name


def test_the_small_network_has_three_to_four_times_the_supervised_gradient():
    for seed in SEEDS:
        weights = [float(line["lambda_eff"]) for line in run("small-fedblade-balance-0.1", 40, seed).values()]
        assert round(0.1 * 0.005 / statistics.median(weights)) in (3, 4)
    assert "three to four times the supervised gradient" in " ".join(PAGE.split())


def test_the_table_of_the_small_network_with_both_splits():
    _, rows = table("small network, last 10 of 40 rounds")
    for study, (_, *cells, share) in zip(("small", "small-alpha-0.5"), rows, strict=True):
        runs = [run(f"{study}-{METHODS[name]}", 40) for name in ("FedETF", "FedBlade", "FedBlade, balanced")]
        assert all(map(near, cells, map(last10, runs)))
        weights = [float(line["lambda_eff"]) for line in runs[-1].values()]
        assert near(share.removesuffix(" %"), 100 * 0.1 * 0.005 / statistics.median(weights))


def test_the_table_of_arithmetics_is_that_of_the_runs():
    _, rows = table("arithmetic")
    runs = cifar10("FedBlade"), run("cifar10-fedblade-primal", 30), cifar10("FedETF")
    for found, (_, early, late, rank, within) in zip(runs, rows, strict=True):
        assert near(early, statistics.mean(accuracies(found, 12, 20)))
        assert near(late, statistics.mean(accuracies(found, 22, 30)))
        assert near(rank, float(found[30]["erank_feature"]))
        assert near(within, float(found[30]["nc1_feature_ratio"]))
    counted = [float(line["count_cholesky_failures"]) for line in VALUES if line["count_cholesky_failures"]]
    assert counted
    assert not any(counted)


def test_the_table_of_splits():
    _, rows = table("| samples of a client: least, median, most")
    of_seed = [line for line in lines("splits.csv") if line["seed"] == "1024"]
    for (name, sizes, classes, effective, share), line in zip(rows, of_seed, strict=True):
        dataset, alpha = name.split(", α = ")
        assert dataset.lower().replace("-", "") in line["dataset"].replace("_", "")
        assert alpha == line["alpha"]
        assert [int(size) for size in sizes.split(", ")] == [
            int(line["smallest"]), pytest.approx(float(line["median"]), abs=0.5), int(line["largest"]),
        ]  # fmt: skip
        assert float(classes) == float(line["classes"])
        assert effective == line["effective_classes"]
        assert share == f"{float(line['largest_class']):.0%}".replace("%", " %")
    assert "it took 50,569 draws" in PAGE
    assert of_seed[0]["draws"] == "50569"


def test_the_overview_quotes_the_page():
    overview = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    ahead = [
        statistics.mean(accuracies(of("FedBlade"), 42, 60)) - statistics.mean(accuracies(of("FedETF"), 42, 60))
        for of in (milder, cifar10)
    ]
    for text in (overview, " ".join(PAGE.split())):
        assert f"FedBlade reaches 20 % in round {first_round(tiny('FedBlade'), 20)}, where its paper says 41" in text
        assert f"ends {last10(cifar10('FedETF')) - last10(cifar10('FedBlade')):.1f} points behind FedETF" in text
        assert "are 16 to 35 points below the paper's" in text
        assert f"{ahead[0]:.1f} points ahead of FedETF in rounds 42 to 60" in text
        assert f"{-ahead[1]:.1f} behind" in text


def test_every_picture_and_file_of_the_page_is_there():
    for target in re.findall(r"\]\((first-study[^)#]*)\)", PAGE):
        assert (RESULTS / target).exists(), target
