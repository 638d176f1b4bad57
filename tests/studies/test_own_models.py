"""Own models for real: what the tables print is what the clients' files say, beside the published numbers."""

import csv
import json
from statistics import fmean, pstdev, stdev

import pytest


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def reproduced(tiny, command, tmp_path):
    """Run a preset of the small paper: what it printed, its lines by method and metric, and the runs by method."""

    def run(name):
        answer = command("reproduce", tiny(name), "--out", tmp_path, "--quiet")
        assert answer.exit_code == 0
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            lines = {(row["method"], row["metric"]): row for row in csv.DictReader(file)}
        runs = {}
        for folder in sorted((tmp_path / "cells").iterdir()):
            summary = json.loads((folder / "summary.json").read_text())
            runs.setdefault(summary["method"], []).append(folder)
        return answer.stdout, lines, runs

    return run


def personal_accuracies(folder):
    return [row["accuracy"] for row in rows_of(folder / "clients.jsonl")]


def test_fine_tuned_models_with_their_deviation_over_clients(reproduced):
    out, lines, runs = reproduced("tn-ft")
    assert "difference = ours - paper" in out
    assert "ours is mean ± standard deviation over the clients of a run (n), mean over runs" in out
    printed = {"fedavg": ("FedAvg", 40.0), "fedavg-ft": ("FedAvg-FT", 60.0), "dotreg-ft": ("DotRegression-FT", 61.0)}
    for method, (label, paper) in printed.items():
        (folder,) = runs[method]
        accuracies = personal_accuracies(folder)
        assert len(accuracies) == 4
        line = lines[label, "personalization"]
        assert float(line["ours_mean"]) == pytest.approx(fmean(accuracies), rel=1e-5)
        assert float(line["ours_std"]) == pytest.approx(pstdev(accuracies), rel=1e-5)
        assert line["note"] == "ours is mean ± standard deviation over the clients of a run (n), mean over runs"
        assert float(line["difference"]) == pytest.approx(fmean(accuracies) - paper, rel=1e-4)
        assert f"{fmean(accuracies):.2f} ± {pstdev(accuracies):.2f}" in out
        rounds = rows_of(folder / "history.jsonl")
        assert ["test_accuracy" in row for row in rounds] == [False, True]
        # The global model on the whole test set, another way to measure the published number.
        other = lines[label, "personalization (global)"]
        assert float(other["ours_mean"]) == pytest.approx(rounds[-1]["test_accuracy"], rel=1e-5)
        assert float(other["paper_mean"]) == paper
    untuned, tuned = (lines[label, "personalization"]["ours_mean"] for label in ("FedAvg", "FedAvg-FT"))
    assert float(tuned) > float(untuned)


def test_generic_and_personal_accuracy(reproduced):
    """FedAvg's best model is tuned on every client; of FedGELA's own models each client's best round counts."""
    out, lines, runs = reproduced("tn-gapa")
    assert "±" not in out
    personal = {"fedavg": fmean(personal_accuracies(runs["fedavg"][0]))}
    own = rows_of(runs["fedgela"][0] / "clients.jsonl")
    per_round = [row["personal_accuracy"] for row in rows_of(runs["fedgela"][0] / "history.jsonl")]
    personal["fedgela"] = fmean(row["best_accuracy"] for row in own)
    assert len(per_round) == 2
    assert personal["fedgela"] >= max(per_round) - 1e-9
    assert per_round[-1] == pytest.approx(fmean(row["accuracy"] for row in own))
    for method, label, papers in (("fedavg", "FedAvg", (30.0, 70.0)), ("fedgela", "FedGELA", (31.0, 71.0))):
        general = max(row["test_accuracy"] for row in rows_of(runs[method][0] / "history.jsonl"))
        for metric, ours, paper in zip(("GA", "PA"), (general, personal[method]), papers, strict=True):
            line = lines[label, metric]
            assert float(line["ours_mean"]) == pytest.approx(ours, rel=1e-5)
            assert float(line["paper_mean"]) == paper
            assert f"{ours:.2f}" in out


def test_the_stages_of_fedetf(reproduced):
    out, lines, runs = reproduced("tn-pers")
    assert "tn-pers: 2 cells, 4 runs, 0 of them finished" in out
    assert "ours is mean ± sample standard deviation over seeds (n−1)" in out
    for method, label in (("fedavg", "FedAvg"), ("fedetf", "FedETF")):
        personal = [fmean(personal_accuracies(folder)) for folder in runs[method]]
        general = [fmean(row["test_accuracy"] for row in rows_of(folder / "history.jsonl")) for folder in runs[method]]
        for metric, ours in (("generalization", general), ("personalization", personal)):
            line = lines[label, metric]
            assert float(line["ours_mean"]) == pytest.approx(fmean(ours), rel=1e-5)
            assert float(line["ours_std"]) == pytest.approx(stdev(ours), rel=1e-4, abs=1e-6)
            assert f"{fmean(ours):.2f} ± {stdev(ours):.2f}" in out
    for folder in runs["fedetf"]:
        curve = json.loads((folder / "summary.json").read_text())["personal_curve"]
        assert len(curve) == 3
        assert curve[-1] == pytest.approx(fmean(personal_accuracies(folder)))
