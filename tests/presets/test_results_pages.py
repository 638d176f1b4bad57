"""The pages of results: their tables follow from the kept runs, and what they say in words is so."""

import csv
import importlib.util
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = ("README", "fashion", "forms", "fedblade", "feddecorr", "fedetf", "fedgela", "feddr_plus")
TEXT = {name: (RESULTS / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}


def script(name, *arguments):
    """The outcome of one of the scripts beside the pages."""
    command = [sys.executable, str(RESULTS / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def contents(folder):
    """The bytes of all files that scripts may write."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix in (".md", ".csv", ".svg", ".json"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def copied(tmp_path):
    """A copy of the pages and the kept runs."""
    return Path(shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.py", "__pycache__")))


def test_the_command_of_the_page_changes_nothing(copied):
    outcome = script("tabulate.py", copied)
    assert outcome.returncode == 0, outcome.stderr
    changed = [name for name, content in contents(copied).items() if contents(RESULTS).get(name) != content]
    assert changed == []


def test_a_run_on_other_data_is_refused_and_nothing_is_written(copied):
    run = next((copied / "queue").glob("cifar10-*-fedetf-*"))
    split = json.loads((run / "partition.json").read_text(encoding="utf-8"))
    (run / "partition.json").write_text(json.dumps(split | {"data": "0123"}), encoding="utf-8")
    before = contents(copied)
    outcome = script("tabulate.py", copied)
    assert outcome.returncode == 1
    assert f"'{run.name}' has data of digest 0123" in outcome.stderr
    assert contents(copied) == before


CHECK = """
from pathlib import Path
import kept
first, *others = map(Path, sys.argv[1:])
for other in others:
    try:
        runs = tuple(kept.Kept(folder, 1024) for folder in (first, other))
        kept.check_comparable([kept.Method("any", runs, 2, None)], "strong")
        print("comparable")
    except SystemExit as refusal:
        print(refusal)
"""


def test_runs_of_other_revisions_or_of_another_split_are_refused(copied):
    first, second = sorted((copied / "queue").glob("cifar10-*0.05*"))[:2]
    split = json.loads((second / "partition.json").read_text(encoding="utf-8"))
    cases = {
        "own": ({"revisions": {"method any": 3, "head any": 2}}, "comparable"),
        "common": ({"revisions": {"local loop": 1}}, "'common' has revisions of common parts {'local loop': 1}"),
        "split": ({"digest": "4567"}, "'split' has a split of digest 4567"),
    }
    for name, (changed, _) in cases.items():
        shutil.copytree(second, copied / name)
        (copied / name / "partition.json").write_text(json.dumps(split | changed), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(RESULTS)!r}){CHECK}"
    command = [sys.executable, "-c", code, first, *(copied / name for name in cases)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, (_, message) in zip(outcome.stdout.splitlines(), cases.values(), strict=True):
        assert message in line


def test_the_queue_lists_its_runs_and_leaves_out_the_kept_ones(tmp_path):
    outcome = script("run_queue.py", "--dry-run", "--steps", "bcd", "--out", tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert "b  Table 1, CIFAR-10, α = 0.05: 3 of 15 runs finished" in outcome.stdout
    assert "   finished  FedBlade, balanced CIFAR-10 dirichlet 0.05, seed 1024\n" in outcome.stdout
    assert outcome.stdout.endswith("5 of 30 runs finished\n")
    assert list(tmp_path.iterdir()) == []


def test_reproduce_prints_the_numbers_of_kept_runs(tmp_path):
    for folder in (RESULTS / "queue").glob("cifar10-*0.05*"):
        shutil.copytree(folder, tmp_path / "cells" / folder.name)
    command = [sys.executable, "-m", "fedblade", "reproduce", f"{RESULTS / 'comparison.toml'}:strong"]
    without_data = os.environ | {"FEDBLADE_DATA": str(tmp_path), "HOME": str(tmp_path)}
    outcome = subprocess.run(
        [*command, "--out", tmp_path], capture_output=True, text=True, check=False, env=without_data
    )
    assert outcome.returncode == 0, outcome.stderr
    rows = list(csv.DictReader((tmp_path / "strong.csv").read_text(encoding="utf-8").splitlines()))
    kept = list(csv.DictReader((RESULTS / "runs.csv").read_text(encoding="utf-8").splitlines()))
    expected = {
        row["method"]: f"{float(row['accuracy']):.2f}"
        for row in kept
        if row["table"] in ("queue.toml:b", "queue.toml:d")
    }
    assert {row["method"]: f"{float(row['ours_mean']):.2f}" for row in rows} == expected


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_a_page_names_is_there(name):
    for target in re.findall(r"\]\(([a-z.][^):#]*)", TEXT[name]):
        assert (RESULTS / target).exists(), target


def test_ranks_are_those_of_all_draws():
    spec = importlib.util.spec_from_file_location("ranks", RESULTS / "ranks.py")
    ranks = sys.modules["ranks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ranks)
    late = np.array([[[70.0, 76], [71, 73]], [[74, 72], [60, 75]], [[50, 51], [52, 53]], [[50, 51], [52, 53]]])
    exact = [[], [], [], []]
    for seeds in itertools.product(range(2), repeat=2):
        for rounds in itertools.product(range(2), repeat=4):
            when = (rounds[:2], rounds[2:])
            means = [
                sum(method[seed, at] for seed, each in zip(seeds, when, strict=True) for at in each) for method in late
            ]
            for own, found in zip(means, exact, strict=True):
                found.append(1 + sum(mean > own for mean in means) + (sum(mean == own for mean in means) - 1) / 2)
    made = {each.label: each for each in ranks.ranks("abcd", late)}
    for label, found in zip("abcd", exact, strict=True):
        assert made[label].mean == pytest.approx(statistics.mean(found), abs=0.02)
    assert [(each.low, each.high) for each in made.values()] == [(1, 2), (1, 2), (3, 4), (3, 4)]


def csv_rows(name):
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FIRST = csv_rows("first-study/values.csv")
OURS = {(row["method"], row["table"]): float(row["accuracy"]) for row in csv_rows("runs.csv") if row["seed"] == "1024"}
PUBLISHED = csv_rows("../../src/fedblade/presets/files/papers/results.csv")


def window(run, measure="test_accuracy", first=0, last=200):
    """The mean of a measure over rounds of a run of the first study."""
    rows = [row for row in FIRST if row["run"] == f"{run}-seed1024" and first <= int(row["round"]) <= last]
    return statistics.mean(float(row[measure]) for row in rows if row[measure])


def last_ten(run):
    rounds = sorted(int(row["round"]) for row in FIRST if row["run"] == f"{run}-seed1024")
    return window(run, first=rounds[-10])


def cifar(method, rounds=200):
    return window(f"cifar10-{method}-r{rounds}", first=42, last=60)


def strong(method):
    return OURS[method, "queue.toml:d" if "balanced" in method else "queue.toml:b"]


def paper(name, table, dataset, level, method, metric):
    keys = {"paper": name, "table": table, "dataset": dataset, "level": level, "method": method, "metric": metric}
    (row,) = (row for row in PUBLISHED if keys.items() <= row.items())
    return float(row["mean"])


def fedblade_paper(dataset, level, method):
    return paper("FedBlade", "1", dataset, level, method, "accuracy_last10")


def seeds_of(run):
    """The mean over the last ten rounds of 40, for three seeds, as the pages write it."""
    values = [
        statistics.mean(
            float(row["test_accuracy"])
            for row in FIRST
            if row["run"] == f"small-{run}-r40-seed{seed}" and int(row["round"]) > 20
        )
        for seed in (1024, 2025, 4096)
    ]
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def fashion_rows(method):
    """The runs on Fashion-MNIST: three seeds."""
    rows = [row for row in csv_rows("runs.csv") if (row["method"], row["table"]) == (method, "fashion.toml:ten")]
    assert [row["seed"] for row in rows] == ["1024", "2025", "4096"]
    return rows


def small(method):
    """The accuracy on Fashion-MNIST, the mean over seeds."""
    return statistics.mean(float(row["accuracy"]) for row in fashion_rows(method))


def at_round(method, measure, number):
    """A diagnostic on Fashion-MNIST, the mean over seeds."""
    histories = [RESULTS / "queue" / row["folder"] / "history.jsonl" for row in fashion_rows(method)]
    lines = [history.read_text(encoding="utf-8").splitlines()[number - 1] for history in histories]
    return statistics.mean(json.loads(line)[measure] for line in lines)


def form_rows(method, level):
    """The runs of the chosen form of FedBlade, or of what it has to beat."""
    rows = (row for row in csv_rows("runs.csv") if (row["method"], row["table"]) == (method, "fashion.toml:confirm"))
    return [row for row in rows if f"clients{level}-" in row["folder"]]


def confirmed(method, level="0.05"):
    """The accuracy of such a form, the mean over three seeds."""
    rows = form_rows(method, level)
    assert [row["seed"] for row in rows] == ["1024", "2025", "4096"]
    return statistics.mean(float(row["accuracy"]) for row in rows)


def late(method, measure):
    """A measure on Fashion-MNIST with α = 0.05: the mean over seeds and those of rounds 51 to 100 that have it."""
    histories = [RESULTS / "queue" / row["folder"] / "history.jsonl" for row in form_rows(method, "0.05")]
    lines = [line for history in histories for line in history.read_text(encoding="utf-8").splitlines()[50:100]]
    return statistics.mean(found[measure] for found in map(json.loads, lines) if measure in found)


MOMENTUM, MILD_MOMENTUM = (confirmed("FedBlade, momentum 0.9", level) for level in ("0.05", "0.5"))
STRONGEST = [last_ten(f"cifar10-{method}-r200") for method in ("fedetf", "fedblade", "fedavg", "feddecorr")]
TINY = [last_ten(f"tiny-{method}-r46") for method in ("fedblade", "feddecorr", "fedavg", "fedetf")]
MILD = [
    float(row["mean"])
    for row in PUBLISHED
    if (row["paper"], row["table"], row["dataset"], row["level"]) == ("FedBlade", "1", "CIFAR-10", "0.5")
]
CLAIMS = {
    "README": (
        ("On CIFAR-10 it has {:.1f} %", strong("FedETF")),
        ("where FedBlade has {:.1f} and", strong("FedBlade")),
        ("and FedAvg {:.1f}, and", strong("FedAvg")),
        ("split {:.1f} where", STRONGEST[0]),
        ("where these have {:.1f} and", STRONGEST[1]),
        ("and {:.1f}. 3.", STRONGEST[2]),
        ("FedAvg reaches {:.1f} %", OURS["FedAvg", "queue.toml:c"]),
        ("lie within {:.1f} points", max(MILD) - min(MILD)),
        ("weight has {:.1f} % in the last ten of 46", TINY[0]),
        ("FedDecorr {:.1f}, FedAvg", TINY[1]),
        ("FedAvg {:.1f}, FedETF", TINY[2]),
        ("FedETF {:.1f}. Rounds", TINY[3]),
        ("it has {} % over three seeds", seeds_of("fedblade-balance-0.1")),
        ("FedETF {} and", seeds_of("fedetf")),
        ("the paper's weight {}:", seeds_of("fedblade")),
        ("({:.1f} and 28.4 %)", STRONGEST[3]),
        ("FedGELA is {:.1f} points ahead of FedAvg over", small("FedGELA") - small("FedAvg")),
        ("balanced weight {:.1f} %,", small("FedBlade, balanced")),
        ("%, FedETF {:.1f}, FedLC", small("FedETF")),
        ("FedLC {:.1f}, FedAvg", small("FedLC")),
        ("FedAvg {:.1f}, FedBlade with the paper's weight", small("FedAvg")),
        ("FedBlade with the paper's weight {:.1f}. The first two", small("FedBlade")),
        ("the first has {:.2f} %,", MOMENTUM),
    ),
    "fashion": (
        ("are level**, {:.1f} and", small("FedBlade, balanced")),
        ("and {:.1f} %. Balanced FedBlade is ahead", small("FedETF")),
        ("seeds, by {:.2f} points in the mean", small("FedBlade, balanced") - small("FedETF")),
        ("FedETF is {:.1f} points ahead", small("FedETF") - small("FedAvg")),
        ("ahead of FedAvg ({:.1f} %)", small("FedAvg")),
        ("the steadiest**: {:.1f} %", small("FedLC")),
        ("weight is {:.1f} points behind FedETF**", small("FedETF") - small("FedBlade")),
        ("and {:.1f} behind FedAvg", small("FedAvg") - small("FedBlade")),
        ("changes little**: {:.1f} %", small("FedDecorr")),
        ("{:.1f} points less than FedAvg", small("FedAvg") - small("FedDecorr")),
        ("FedETF's features have rank {:.1f}", at_round("FedETF", "erank_feature", 100)),
        ("balanced FedBlade {:.1f}.", at_round("FedBlade, balanced", "erank_feature", 100)),
        ("ends with {:.1f}, and", at_round("FedBlade", "erank_feature", 100)),
        ("FedDecorr with {:.1f}, below", at_round("FedDecorr", "erank_feature", 100)),
        ("below FedAvg's {:.1f}.", at_round("FedAvg", "erank_feature", 100)),
    ),
    "forms": (
        ("it has {:.2f} % where", MOMENTUM),
        ("without momentum has {:.2f}, ahead", confirmed("FedBlade, balanced")),
        ("seeds, by {:.2f} points in the mean (95", MOMENTUM - confirmed("FedBlade, balanced")),
        ("each seed, by {:.2f} points in the mean,", MOMENTUM - confirmed("FedETF")),
        ("three seeds, by {:.2f} points in the mean, which", MILD_MOMENTUM - confirmed("FedETF", "0.5")),
        ("their cosine is {:.3f} with balanced", late("FedBlade, balanced", "update_cosine")),
        ("FedBlade, {:.3f} with momentum", late("FedBlade, momentum 0.9", "update_cosine")),
        ("momentum and {:.3f} with FedETF", late("FedETF", "update_cosine")),
        ("(rounds 51 to 100: {:.4f} and", late("FedBlade, balanced", "loss_pa")),
        ("and {:.4f}), and an update", late("FedBlade, momentum 0.9", "loss_pa")),
        (
            "an update is {:.0f} % shorter",
            100 - 100 * late("FedBlade, momentum 0.9", "drift_norm") / late("FedBlade, balanced", "drift_norm"),
        ),
    ),
    "fedblade": (
        ("set it is {:.2f} points ahead of the balanced form", MOMENTUM - confirmed("FedBlade, balanced")),
        ("settled, and {:.2f} ahead of FedETF", MOMENTUM - confirmed("FedETF")),
        ("weight FedBlade is {:.1f} points behind FedETF over three seeds", small("FedETF") - small("FedBlade")),
        ("weight it is {:.1f} ahead", small("FedBlade, balanced") - small("FedETF")),
        ("features have rank {:.1f} where", at_round("FedBlade", "erank_feature", 50)),
        ("where FedETF's have {:.1f},", at_round("FedETF", "erank_feature", 50)),
        ("is {:.0f} times as long", at_round("FedBlade", "drift_norm", 50) / at_round("FedETF", "drift_norm", 50)),
        ("{:.1f} points behind FedETF in our run", strong("FedETF") - strong("FedBlade")),
        ("{:.1f} points ahead in our run", strong("FedBlade") - strong("FedAvg")),
        ("{:.1f} points ahead in the last ten rounds", last_ten("tiny-fedblade-r46") - last_ten("tiny-fedetf-r46")),
        (
            "older split {:.1f} points ahead in rounds 42 to 60",
            window("cifar10-alpha-0.5-fedblade-r60", first=42) - window("cifar10-alpha-0.5-fedetf-r60", first=42),
        ),
        (
            "α = 0.05: {:.1f} points ahead of FedETF after 200 rounds",
            fedblade_paper("Tiny-ImageNet", "0.05", "FedBlade") - fedblade_paper("Tiny-ImageNet", "0.05", "FedETF"),
        ),
        (
            "the same: {:.1f} points ahead of FedAvg",
            fedblade_paper("CIFAR-10", "0.05", "FedBlade") - fedblade_paper("CIFAR-10", "0.05", "FedAvg"),
        ),
        (
            "α = 0.5: {:.1f} points ahead of FedETF",
            fedblade_paper("CIFAR-10", "0.5", "FedBlade") - fedblade_paper("CIFAR-10", "0.5", "FedETF"),
        ),
    ),
    "feddecorr": (
        ("{:.1f} points ahead of FedAvg in the last ten", last_ten("tiny-feddecorr-r46") - last_ten("tiny-fedavg-r46")),
        ("ends {:.1f} points behind", last_ten("cifar10-fedavg-r200") - last_ten("cifar10-feddecorr-r200")),
        ("effective rank {:.0f} against", window("tiny-feddecorr-r46", "erank_feature", 46, 46)),
        ("against {:.0f} on Tiny-ImageNet", window("tiny-fedavg-r46", "erank_feature", 46, 46)),
        ("{:.0f} against", window("cifar10-feddecorr-r200", "erank_feature", 200)),
        ("against {:.0f} on CIFAR-10 (round 200)", window("cifar10-fedavg-r200", "erank_feature", 200)),
        ("Fashion-MNIST, {:.1f} against", at_round("FedDecorr", "erank_feature", 100)),
        ("against {:.1f} (round 100, three seeds)", at_round("FedAvg", "erank_feature", 100)),
        (
            "FedDecorr {:.1f} points ahead of FedAvg on CIFAR-10",
            fedblade_paper("CIFAR-10", "0.05", "FedDecorr") - fedblade_paper("CIFAR-10", "0.05", "FedAvg"),
        ),
        ("from {:.2f} to 73.06", paper("FedDecorr", "1", "CIFAR-10", "0.05", "FedAvg", "accuracy")),
        ("from 64.85 to {:.2f}", paper("FedDecorr", "1", "CIFAR-10", "0.05", "FedAvg+FedDecorr", "accuracy")),
        ("from {:.2f} to 40.29", paper("FedDecorr", "1", "Tiny-ImageNet", "0.05", "FedAvg", "accuracy")),
        ("from 35.02 to {:.2f}", paper("FedDecorr", "1", "Tiny-ImageNet", "0.05", "FedAvg+FedDecorr", "accuracy")),
    ),
    "fedetf": (
        ("{:.1f} points ahead of FedAvg (FedBlade's", strong("FedETF") - strong("FedAvg")),
        ("on Fashion-MNIST {:.1f} points ahead over three seeds", small("FedETF") - small("FedAvg")),
        ("{:.1f} points behind FedAvg in the last ten", last_ten("tiny-fedavg-r46") - last_ten("tiny-fedetf-r46")),
        (
            "general accuracy: {:.2f}, FedAvg 44.48",
            paper("FedETF", "1", "CIFAR-10", "0.05", "FedETF", "generalization"),
        ),
        ("general accuracy: {:.2f}, FedAvg 52.76", paper("FedETF", "1", "CIFAR-10", "0.1", "FedETF", "generalization")),
        ("personal accuracy: {:.2f}, ", paper("FedETF", "1", "CIFAR-10", "0.05", "FedETF", "personalization")),
    ),
    "fedgela": (
        ("{:.1f} points ahead of FedAvg in rounds 42 to 60", cifar("fedgela", 60) - cifar("fedavg")),
        ("{:.1f} behind it in the last ten", last_ten("tiny-fedavg-r46") - last_ten("tiny-fedgela-r46")),
        ("it is {:.1f} points behind FedETF", cifar("fedetf") - cifar("fedgela", 60)),
        ("general accuracy: {:.2f}, FedAvg 54.57", paper("FedGELA", "2", "CIFAR-10", "0.1", "FedGELA", "GA")),
        ("rises as well: {:.2f}", paper("FedGELA", "2", "CIFAR-10", "0.1", "FedGELA", "PA")),
    ),
    "feddr_plus": (
        ("near chance on CIFAR-10: {:.1f} %", cifar("feddr-plus", 60)),
        ("in rounds 42 to 60, FedAvg {:.1f} %", cifar("fedavg")),
        ("ahead of FedETF ({:.2f})", paper("FedDr+", "3", "CIFAR-10", "2", "FedETF", "accuracy")),
        ("and FedGELA ({:.2f})", paper("FedDr+", "3", "CIFAR-10", "2", "FedGELA", "accuracy")),
        ("FedAvg {:.2f} |", paper("FedDr+", "3", "CIFAR-10", "2", "FedAvg", "accuracy")),
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_numbers_of_the_headlines_are_those_of_the_runs_and_of_the_papers(name):
    text = " ".join(TEXT[name].split())
    missing = [claim.format(number) for claim, number in CLAIMS[name] if claim.format(number) not in text]
    assert missing == []
