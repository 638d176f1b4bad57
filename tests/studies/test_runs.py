"""Reproducing for real: cells are run, found again, gone on with, and published."""

import html
import json
from contextlib import contextmanager

import pytest

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.runs import RunListener, execute
from fedblade.studies import plan_reproduction, run_planned


def folders(path):
    return sorted(each.name for each in (path / "cells").iterdir())


def stamps(path):
    return {each: each.stat().st_mtime_ns for each in path.rglob("history.jsonl")}


def test_reproduce_end_to_end(tiny, command, tmp_path):
    answer = command("reproduce", tiny("tn-t1"), "--out", tmp_path, "--quiet")
    assert answer.exit_code == 0
    out = answer.stdout
    assert "tn-t1: 6 cells, 8 runs, 0 of them finished" in out
    assert "client-steps, about" in out
    assert "pending: 2 cells, measured by `fedblade bench losses` and by no run\n" in out
    assert out.splitlines()[-1] == str(tmp_path / "tn-t1.html")
    runs = [json.loads(each.read_text()) for each in sorted((tmp_path / "cells").glob("*/summary.json"))]
    fedavg = [each["final_accuracy"] for each in runs if each["method"] == "fedavg"][:2]
    line = (tmp_path / "tn-t1.csv").read_text().splitlines()[1].split(",")
    assert line[7:9] == ["FedAvg", "accuracy"]
    assert float(line[9]) == pytest.approx(sum(fedavg) / 2, rel=1e-5)
    assert float(line[16]) == pytest.approx(sum(fedavg) / 2 - 50.0, rel=1e-4)
    assert (tmp_path / "tn-t1.tex").read_text().startswith("\\begin{table}")
    assert (tmp_path / "tn-t1.md").read_text().count("pending: `fedblade bench losses`") == 2
    before, names = stamps(tmp_path), folders(tmp_path)
    assert len(names) == 8

    again = command("reproduce", tiny("tn-t1"), "--out", tmp_path, "--quiet").stdout
    assert "8 runs, 8 of them finished" in again
    assert "to do" not in again
    derived = command("reproduce", tiny("tn-t2"), "--out", tmp_path, "--quiet").stdout
    assert "tn-t2: 2 cells, 4 runs, 4 of them finished" in derived
    assert (stamps(tmp_path), folders(tmp_path)) == (before, names)


def test_a_dry_run_lists_and_touches_nothing(tiny, command, tmp_path):
    out = command("reproduce", tiny("tn-t1"), "--where", "level=1", "--dry-run", "--out", tmp_path / "new").stdout
    assert out.count("0 of 2 runs done") == 2
    words = ("80 ± 2", "estimating the time", "timing 1: fedavg", "to do:")
    assert sorted(words, key=out.index) == list(words)
    assert out.count("pending: `fedblade bench losses`") == 1
    assert "to do:" in out
    assert not (tmp_path / "new").exists()


def test_a_dry_run_names_the_runs_that_the_command_refuses(tiny, command, tmp_path, finish):
    arguments = ("reproduce", tiny("tn-one"), "--out", tmp_path)
    for run in plan_reproduction(tiny("tn-one"), out=tmp_path).runs:
        finish(run, [1.0])
        (run.folder / "partition.json").write_text('{"revisions": {"method fedprox": 99}}')
    out = command(*arguments, "--dry-run").stdout
    assert "0 of 2 runs done, 2 refused" in out
    assert out.count("refused: '") == out.count("method fedprox of revision 99") == 2
    assert "to do" not in out
    with pytest.raises(Misconfigured, match="method fedprox of revision 99"):
        command(*arguments)


def test_a_dry_run_works_without_the_data(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    arguments = (
        "reproduce",
        "fb-t1",
        "--where",
        "dataset=CIFAR-10",
        "--where",
        "level=0.05",
        "--where",
        "method=FedAvg",
    )
    out = command(*arguments, "--dry-run", "--out", tmp_path).stdout
    assert "about 480,000 client-steps (guessed" in out
    assert "time unknown without the data" in out
    assert "estimating" not in out
    (row,) = [line for line in out.splitlines() if line.startswith("FedAvg")]
    assert "55.19 ± 3.81" in row
    assert "note: split = client-wise" in out
    assert "data set cifar10 is not here" in out
    with pytest.raises(Misconfigured, match="cifar10"):
        command(*arguments, "--out", tmp_path)


def test_shortened_runs_say_so_and_go_elsewhere(tiny, command, tmp_path):
    arguments = ("reproduce", tiny("tn-f1"), "--where", "epochs=1", "--rounds", 2, "--seeds", "1", "--out", tmp_path)
    out = command(*arguments, "--set", "lr=0.2", "--quiet").stdout
    said = "The paper does not say which data it used"
    for text in (
        "shortened to 2 of 3 rounds",
        "shortened to 1 of 2 seeds (1)",
        "lr = 0.2 instead of the preset's",
        said,
    ):
        assert text in out
        assert text in (tmp_path / "tn-f1.md").read_text()
        assert text in (tmp_path / "tn-f1.csv").read_text()
        assert text in html.unescape((tmp_path / "tn-f1.html").read_text())
    (name,) = folders(tmp_path)
    assert name.startswith("digits-dirichlet1-3of6-mlp-fedavg-e1-r2-")
    full = plan_reproduction(tiny("tn-f1"), where=["epochs=1"], out=tmp_path)
    assert name not in {run.folder.name for run in full.runs}


def test_names_do_not_depend_on_the_order_of_a_grid(tmp_path):
    text = """
    [presets.{id}]
    seeds = [5]
    dataset.name = "digits"
    partition.name = "iid"
    model.name = "mlp"
    grid = {grid}
    """
    axes = ['"local.epochs" = [1, 2]', 'method = ["fedavg", "fedprox"]']
    names = []
    for id_, order in (("a", axes), ("b", axes[::-1])):
        path = tmp_path / f"{id_}.toml"
        path.write_text(text.format(id=id_, grid="{" + ", ".join(order) + "}"))
        names.append([run.folder.name for run in plan_reproduction(path, out=tmp_path).runs])
    assert names[0] != names[1]
    assert sorted(names[0]) == sorted(names[1])
    assert len(set(names[0])) == 4


class Stop(RunListener):
    """Interrupts after two rounds."""

    def on_round(self, record):
        if record["round"] == 2:
            raise KeyboardInterrupt


def watching(*listeners):
    """Hand out listeners in turn."""
    left = iter(listeners)

    @contextmanager
    def watch(label):
        yield next(left)

    return watch


def test_a_run_that_was_cut_short_goes_on(tiny, tmp_path):
    def plan(out):
        return plan_reproduction(tiny("tn-one"), seeds=[1], out=out)

    (whole,) = plan(tmp_path / "whole").runs
    execute(whole.config, out=whole.folder)
    cut = plan(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        run_planned(cut.runs, watching(Stop()))
    assert cut.runs[0].rounds_done == 2
    assert run_planned(cut.runs, watching(RunListener())) == {}
    lines = [(run.folder / "history.jsonl").read_text().splitlines() for run in (whole, cut.runs[0])]
    accuracies = [[json.loads(line)["test_accuracy"] for line in each] for each in lines]
    assert accuracies[0] == accuracies[1]
    assert len(accuracies[0]) == 3


def test_a_run_that_breaks_does_not_stop_the_others(tiny, command, tmp_path):
    arguments = ("reproduce", tiny("tn-f1"), "--seeds", "1", "--out", tmp_path, "--quiet")
    with pytest.raises(RunFailed, match="2 of 2 runs failed"):
        command(*arguments, "--set", "lr=1e30")
    assert (tmp_path / "tn-f1.md").read_text().count("| failed |") == 2


def test_finished_runs_are_kept_whatever_the_engine_asked_for(tiny, tmp_path, finish):
    plan = plan_reproduction(tiny("tn-one"), out=tmp_path)
    for run in plan.runs:
        finish(run, [1.0])
    other = plan_reproduction(tiny("tn-one"), overrides={"device": "cpu", "engine": "sequential"}, out=tmp_path)
    assert [run.folder for run in other.runs] == [run.folder for run in plan.runs]
    assert other.changes == ()
    assert run_planned(other.runs, watching()) == {}


def test_prototype_sizes_need_no_run(command, tmp_path):
    out = command("reproduce", "fb-t11", "--where", "model=MobileNetV2", "--out", tmp_path).stdout
    text = (tmp_path / "fb-t11.md").read_text()
    for said in ("split = client-wise", "both readings are possible"):
        assert said not in text + out
    assert [line for line in text.splitlines() if line.startswith("| ")][2:] == [
        "| CIFAR-10 | FedBlade | 50 | 50 | +0 |",
        "| CIFAR-100 | FedBlade | 500 | 500 | +0 |",
        "| Tiny-ImageNet | FedBlade | 1000 | 1000 | +0 |",
    ]
    assert out.splitlines()[-1] == str(tmp_path / "fb-t11.md")


@pytest.mark.parametrize("rounds", [0, -3])
def test_no_rounds_is_a_mistake(tiny, rounds):
    with pytest.raises(Misconfigured, match=f"--rounds {rounds} leaves nothing to run"):
        plan_reproduction(tiny("tn-one"), rounds=rounds)
