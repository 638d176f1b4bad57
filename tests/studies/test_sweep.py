"""Sweeps: every combination is run, methods get the same budget, and the chosen value is reported."""

import json

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.runs import execute
from fedblade.studies import parse_axis, plan_sweep, select_best
from fedblade.studies._measures import Measurement
from fedblade.studies._sweep import Axis

SMALL = {"model": "mlp", "hidden": [16], "dim": 8, "rounds": 2, "epochs": 1, "num_clients": 6, "clients_per_round": 3}


def trials(tmp_path, *grid, **options):
    options = {"overrides": SMALL, "seeds": [1], **options}
    return plan_sweep(None, [parse_axis(each) for each in grid], tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("lr=0.01,0.1", Axis("lr", (0.01, 0.1))),
        ("method=fedavg, fedprox", Axis("method", ("fedavg", "fedprox"))),
        ("fedprox:mu=1", Axis("mu", (1,), "fedprox")),
        ("my/file.py:mine:mu=1", Axis("mu", (1,), "my/file.py:mine")),
        ("hidden=[8,8],[16]", Axis("hidden", ([8, 8], [16]))),
        ('scale={init=1.0, min="none"},{init=2.0}', Axis("scale", ({"init": 1.0, "min": "none"}, {"init": 2.0}))),
    ],
)
def test_axes(text, axis):
    assert parse_axis(text) == axis


@pytest.mark.parametrize("text", ["lr", "=1,2", "lr=", "lr=1,,2"])
def test_no_axes(text):
    with pytest.raises(Misconfigured, match="is not an axis"):
        parse_axis(text)


def test_every_combination_is_a_trial(tmp_path):
    found = trials(tmp_path, "method=fedavg,fedprox", "lr=0.01,0.1", "epochs=1,2")
    assert len({(each.method, *each.values.values()) for each in found}) == 8
    for each in found:
        (run,) = each.runs
        assert run.config.method.name == each.method
        assert (run.config.optimizer.lr, run.config.local.epochs) == (each.values["lr"], each.values["epochs"])


def test_folders_do_not_depend_on_the_order_of_the_grid(tmp_path):
    one = trials(tmp_path, "lr=0.01,0.1", "epochs=1,2")
    two = trials(tmp_path, "epochs=1,2", "lr=0.01,0.1")
    assert {run.folder for each in one for run in each.runs} == {run.folder for each in two for run in each.runs}
    assert one[0].runs[0].folder.name == "fedblade-epochs-1-lr-0.01-seed1"


def test_methods_may_have_axes_of_their_own_of_equal_length(tmp_path):
    found = trials(tmp_path, "fedprox:mu=0.1,1.0", "fedblade:gamma_pba=0.5,1.0", "lr=0.1")
    assert [each.label for each in found] == [
        "fedprox mu=0.1 lr=0.1",
        "fedprox mu=1 lr=0.1",
        "fedblade gamma_pba=0.5 lr=0.1",
        "fedblade gamma_pba=1 lr=0.1",
    ]


def test_unequal_budgets_are_refused_unless_asked_for(tmp_path):
    grid = ("method=fedavg,fedprox", "fedprox:mu=0.1,1.0")
    with pytest.raises(Misconfigured, match="fedavg 1, fedprox 2"):
        trials(tmp_path, *grid)
    assert len(trials(tmp_path, *grid, uneven=True)) == 3


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((), "nothing to sweep"),
        (("method=fedavg", "fedprox:mu=1"), "does not name"),
        (("mu=1,2",), "unknown key 'mu'"),
    ],
)
def test_mistakes(tmp_path, grid, message):
    with pytest.raises(Misconfigured, match=message):
        trials(tmp_path, *grid)


def test_the_highest_mean_is_chosen_and_the_first_of_equals(tmp_path, finish):
    found = trials(tmp_path, "method=fedavg,fedprox", "lr=0.1,0.2,0.3", seeds=[1, 2])
    accuracies = iter([50, 60, 70, 58, 40, 88, 30, 30, 30, 30, 20, 20])
    for each in found:
        for run in each.runs:
            finish(run, [1.0], accuracy=next(accuracies))
    best = select_best(found)
    assert {method: each.values["lr"] for method, each in best.items()} == {"fedavg": 0.2, "fedprox": 0.1}
    assert best["fedavg"].accuracy() == Measurement(64.0, pytest.approx(72.0**0.5), 2)


def test_sweep_end_to_end(command, tmp_path):
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    arguments = ("sweep", "--grid", "method=fedavg", "--grid", "lr=0.001,0.3", "--seeds", "1", *settings, "--quiet")
    out = command(*arguments, "--out", tmp_path).stdout
    assert "2 runs to do:" in out
    assert "on the test set, so these are optimistic" in out
    assert "chosen for fedavg: lr = 0.3" in out
    assert out.splitlines()[-1] == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").is_file()
    again = command(*arguments, "--out", tmp_path).stdout
    assert "runs to do" not in again
    assert "chosen for fedavg: lr = 0.3" in again


def test_on_a_validation_split_the_chosen_value_is_tested(command, tmp_path):
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    arguments = ("sweep", "--grid", "method=fedavg", "--grid", "lr=0.001,0.3", "--seeds", "1", *settings, "--quiet")
    out = command(*arguments, "--validation", "--out", tmp_path).stdout
    assert "optimistic" not in out
    assert "on the validation set" in out
    assert "accuracy in % on the test set" in out
    summaries = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/summary.json")}
    assert {name: each["evaluated_on"] for name, each in summaries.items()} == {
        "fedavg-lr-0.001-seed1": "validation",
        "fedavg-lr-0.3-seed1": "validation",
        "fedavg-lr-0.3-seed1-tested": "test",
    }


def test_a_cell_of_a_grid_can_be_swept(tiny, tmp_path):
    axes = [parse_axis("lr=0.1,0.2")]
    with pytest.raises(Misconfigured, match="is a grid and 6 of its cells fit"):
        plan_sweep(tiny("tn-t1"), axes, tmp_path)
    found = plan_sweep(tiny("tn-t1"), axes, tmp_path, where=["method=FedProx", "level=0.1"])
    assert [len(each.runs) for each in found] == [2, 2]
    assert {run.config.method_knobs["mu"] for each in found for run in each.runs} == {0.1}


def test_a_folder_with_results_of_other_settings_is_refused(tmp_path):
    run = trials(tmp_path, "lr=0.01")[0].runs[0]
    execute(run.config, out=run.folder)
    trials(tmp_path, "lr=0.01")
    with pytest.raises(Misconfigured, match=r"local\.batch_size = 32"):
        trials(tmp_path, "lr=0.01", overrides={**SMALL, "batch_size": 16})
