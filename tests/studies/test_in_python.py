"""Comparisons and sweeps from Python: the runs of the commands, with data and models as objects too."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedblade
from fedblade.api import Misconfigured, RunFailed
from support.five_modules import Mlp, arrays

QUICK = {"model": "mlp", "hidden": [16], "dim": 8, "num_clients": 6, "clients_per_round": 3, "rounds": 2, "epochs": 1,
         "metrics": ["accuracy", "spectrum"]}  # fmt: skip
MINE = {"dataset": arrays("mlp"), "model": Mlp(), "num_clients": 10, "rounds": 2, "metrics": ["accuracy"]}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Temporary folders of a study are made here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def histories(folder):
    lines = {path.parent.name: path.read_text().splitlines() for path in Path(folder).glob("*/history.jsonl")}
    return {name: [json.loads(line)["test_accuracy"] for line in rounds] for name, rounds in lines.items()}


def test_a_comparison_is_that_of_single_runs():
    comparison = fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1, 2], **QUICK)
    alone = fedblade.run(method="fedetf", seed=2, **QUICK)
    assert [(result.summary["method"], result.summary["seed"]) for result in comparison] == [
        ("fedavg", 1), ("fedavg", 2), ("fedetf", 1), ("fedetf", 2)
    ]  # fmt: skip
    assert comparison[3].summary["final_accuracy"] == alone.summary["final_accuracy"]


def test_without_a_folder_nothing_stays_on_disk_and_everything_can_be_read(temporary, tmp_path):
    comparison = fedblade.compare(methods=["fedavg"], seeds=[1, 2], **QUICK)
    assert list(temporary.iterdir()) == []
    assert comparison.path is None
    assert all(result.path is None for result in comparison)
    assert "fedavg" in comparison.report(tmp_path / "page.html").read_text()
    assert comparison[0].diagnostics[0]["round"] == 1
    assert comparison[0].model.predict(torch.zeros(3, 1, 8, 8)).shape == (3,)


def test_the_table_has_means_and_deviations_over_seeds(tmp_path):
    pytest.importorskip("pandas")
    comparison = fedblade.compare(methods=["fedavg", "fedprox"], seeds=[1, 2], out=tmp_path / "c", **QUICK)
    frame = comparison.to_pandas()
    mean, std = (getattr(frame[frame.method == "fedprox"].final_accuracy, name)() for name in ("mean", "std"))
    assert f"{mean:.2f} ± {std:.2f}" in repr(comparison)
    assert f"{mean:.2f} ± {std:.2f}" in comparison._repr_html_()
    assert f"folder: {tmp_path / 'c'}" in repr(comparison)
    assert len(comparison.plot().lines) == 2


def test_the_seed_of_a_run_is_that_of_a_comparison_too():
    assert [result.summary["seed"] for result in fedblade.compare(methods=["fedavg"], seed=7, **QUICK)] == [7]


def test_a_comparison_goes_on_where_it_was_cut_short(tmp_path):
    class Stop(fedblade.api.RunListener):
        def on_round(self, record):
            if record["round"] == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1], out=tmp_path / "c", listener=Stop(), **MINE)
    comparison = fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1], out=tmp_path / "c", **MINE)
    whole = fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1], **MINE)
    assert [result.summary["final_accuracy"] for result in comparison] == [
        result.summary["final_accuracy"] for result in whole
    ]


def test_other_data_are_refused_for_runs_that_exist(tmp_path):
    fedblade.compare(methods=["fedavg"], seeds=[1], out=tmp_path / "c", **MINE)
    x, *rest = arrays("mlp")
    with pytest.raises(Misconfigured, match="the data set differs"):
        fedblade.compare(methods=["fedavg"], seeds=[1], out=tmp_path / "c", **(MINE | {"dataset": (x + 1, *rest)}))


@pytest.mark.thorough
def test_runs_side_by_side_are_those_in_one_process(tmp_path):
    for jobs in (1, 2):
        fedblade.compare(methods=["fedavg", "fedetf"], seeds=[1], jobs=jobs, out=tmp_path / str(jobs), **QUICK)
    assert histories(tmp_path / "1") == histories(tmp_path / "2") != {}


def test_objects_of_this_process_are_not_sent_to_others():
    with pytest.raises(Misconfigured, match=r"jobs = 2 trains in other processes.*Leave jobs out"):
        fedblade.compare(methods=["fedavg"], seeds=[1], jobs=2, **MINE)
    assert len(fedblade.compare(methods=["fedavg"], seeds=[1], jobs="auto", **MINE)) == 1


def test_a_run_that_fails_does_not_stop_the_others_and_is_told(tmp_path):
    sweep = fedblade.sweep(method="fedavg", grid={"lr": [0.01, 1e20]}, seeds=[1], out=tmp_path / "s", **QUICK)
    assert list(sweep.failed) == ["fedavg lr=1e+20, seed 1"]
    assert sweep.best.values == {"lr": 0.01}
    assert "fedavg lr=1e+20, seed 1 failed:" in repr(sweep)
    assert "fedavg lr=1e+20, seed 1 failed:" in sweep._repr_html_()
    assert len(sweep) == 1
    with pytest.raises(RunFailed, match="all runs failed"):
        fedblade.compare(methods=["fedavg"], seeds=[1], lr=1e20, **QUICK)


def test_a_sweep_has_a_best_trial_of_every_method_and_one_of_all():
    pytest.importorskip("pandas")
    sweep = fedblade.sweep(
        grid={"method": ["fedavg", "fedprox"], "lr": [0.0001, 0.1], "fedprox:mu": [0.1]}, seeds=[1], **QUICK
    )
    assert [(trial.method, dict(trial.values)) for trial in sweep.trials] == [
        ("fedavg", {"lr": 0.0001}), ("fedavg", {"lr": 0.1}),
        ("fedprox", {"lr": 0.0001, "mu": 0.1}), ("fedprox", {"lr": 0.1, "mu": 0.1}),
    ]  # fmt: skip
    assert set(sweep.chosen) == {"fedavg", "fedprox"}
    assert sweep.best.accuracy.mean == max(trial.accuracy.mean for trial in sweep.chosen.values())
    assert sweep.best.tested == ()
    assert "optimistic" in repr(sweep)
    assert list(sweep.to_pandas()["lr"]) == [0.0001, 0.1, 0.0001, 0.1]
    again = fedblade.sweep(grid={"lr": np.array([0.0001, 0.1])}, seeds=[1], **QUICK)
    assert [trial.values for trial in again.trials] == [{"lr": 0.0001}, {"lr": 0.1}]
    with pytest.raises(Misconfigured, match="same number of trials"):
        fedblade.sweep(grid={"method": ["fedavg", "fedprox"], "fedprox:mu": [0.1, 1.0]}, seeds=[1], **QUICK)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"methods": "fedavg,fedprox"}, r"methods = 'fedavg,fedprox'; expected a list of names"),
        ({"methods": []}, "expected a list of names"),
        ({"methods": ["fedavg"], "seeds": 3}, "seeds = 3; expected a list of whole numbers"),
        ({"methods": ["fedavg"], "seeds": [-1]}, "expected whole numbers of at least 0"),
        ({"methods": ["fedavg"], "jobs": 0}, "jobs '0' is not a number of runs at a time"),
        ({"methods": ["fedavgg"]}, "fedavg"),
        ({"methods": ["fedavg"], "method": "fedprox"}, "method = 'fedprox' has no effect"),
    ],
)
def test_mistakes_in_a_comparison_end_in_words(arguments, words):
    with pytest.raises(Misconfigured, match=words):
        fedblade.compare(**QUICK, **arguments)


@pytest.mark.parametrize(
    ("grid", "words"),
    [({}, "nothing to sweep"), ({"lr": 0.1}, r"grid = \{'lr': 0.1\}; expected a list"), ({"seed": [1]}, "no axis")],
)
def test_mistakes_in_a_grid_end_in_words(grid, words):
    with pytest.raises(Misconfigured, match=words):
        fedblade.sweep(grid=grid, **QUICK)
