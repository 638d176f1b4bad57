"""Trackers in runs: asked for by name, refused early, never part of what a run is, never what breaks it."""

import json
import sys
import tomllib

import pytest

import fedblade
from fedblade.config.overrides import parse_assignment
from fedblade.core.errors import Misconfigured, MissingExtra
from fedblade.runs import RunListener, load_config
from fedblade.trackers import TRACKERS, check_installed

SMALL = {"rounds": 3, "num_clients": 4, "clients_per_round": 2, "epochs": 1, "method": "fedavg"}


class Notes(RunListener):
    """Keeps notes, and stops the run after a round if told to."""

    def __init__(self, stop_after=None):
        self.notes, self.stop_after = [], stop_after

    def on_round(self, record):
        if record["round"] == self.stop_after:
            raise KeyboardInterrupt

    def on_note(self, text):
        self.notes.append(text)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A package of every tracker's name that is there and cannot be imported."""
    for kind in TRACKERS.values():
        package = tmp_path / "site" / kind.package
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('this package is broken')\n")
    for name in list(sys.modules):
        if name.partition(".")[0] in TRACKERS or name.startswith("torch.utils.tensorboard"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_the_schema_knows_the_trackers_there_are():
    config, _ = load_config(None, {"method": "fedavg", "trackers": list(TRACKERS)})
    assert config.general.trackers == list(TRACKERS)
    assert load_config(None, {"method": "fedavg"})[0].general.trackers == []


def test_names_may_come_in_one_string_as_on_the_command_line():
    key, value = parse_assignment("trackers=tensorboard, mlflow")
    assert load_config(None, {"method": "fedavg", key: value})[0].general.trackers == ["tensorboard", "mlflow"]


@pytest.mark.parametrize("given", ["tensorbord", ["tensorboard", "neptune"], 3, [3]])
def test_what_is_no_tracker_is_refused_with_those_there_are(given):
    with pytest.raises(Misconfigured, match=r"trackers = .* is not allowed; expected"):
        load_config(None, {"method": "fedavg", "trackers": given})


def test_trackers_need_a_folder():
    with pytest.raises(Misconfigured, match="Give out=DIR"):
        fedblade.run(trackers=["tensorboard"], **SMALL)


@pytest.mark.parametrize("name", list(TRACKERS))
def test_a_tracker_that_is_not_installed_is_an_error_before_the_run(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, TRACKERS[name].package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'fedblade\[{name}\]'"):
        fedblade.run(trackers=[name], out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    """Trackers leave folders of their own name where they are run, and Python takes any folder for a package."""
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingExtra):
        check_installed(["wandb"])


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(Misconfigured, match="Did you mean 'mlflow'"):
        check_installed(["mlfow"])


@pytest.mark.usefixtures("broken")
def test_a_run_survives_trackers_that_break(tmp_path):
    listener = Notes()
    result = fedblade.run(trackers=list(TRACKERS), out=tmp_path / "run", listener=listener, **SMALL)
    assert [row["round"] for row in result.history] == [1, 2, 3]
    assert result.summary["status"] == "finished"
    said = [note for note in listener.notes if "stopped" in note]
    assert [note.split()[0] for note in said] == list(TRACKERS)
    assert all("this package is broken" in note and "history.jsonl" in note for note in said)


@pytest.mark.usefixtures("broken")
def test_trackers_do_not_change_what_is_computed(tmp_path):
    plain = fedblade.run(out=tmp_path / "plain", **SMALL)
    followed = fedblade.run(trackers=["tensorboard"], out=tmp_path / "followed", **SMALL)
    weights, same = plain.model.state_dict(), followed.model.state_dict()
    assert all((weights[name] == same[name]).all() for name in weights)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(("before", "after"), [([], ["mlflow"]), (["mlflow"], []), (["mlflow"], ["wandb"])])
@pytest.mark.parametrize("spelled_out", [True, False])
def test_a_run_goes_on_with_other_trackers(tmp_path, before, after, spelled_out):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(trackers=before, out=out, listener=Notes(stop_after=2), **SMALL)
    listener = Notes()
    result = fedblade.run(trackers=after, out=out, resume=True, listener=listener, **(SMALL if spelled_out else {}))
    assert len(result.history) == 3
    assert [note.split()[0] for note in listener.notes if "stopped" in note] == after
    assert tomllib.loads((out / "config.toml").read_text())["trackers"] == after


@pytest.mark.usefixtures("broken")
def test_a_resumed_run_keeps_its_trackers_if_nothing_is_said(tmp_path):
    out, listener = tmp_path / "run", Notes()
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(trackers=["wandb"], out=out, listener=Notes(stop_after=1), **SMALL)
    fedblade.run(out=out, resume=True, listener=listener)
    assert [note.split()[0] for note in listener.notes if "stopped" in note] == ["wandb"]


def test_a_folder_from_before_there_were_trackers_can_go_on(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fedblade.run(out=out, listener=Notes(stop_after=1), **SMALL)
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config.replace("trackers = []\n", ""))
    assert len(fedblade.run(out=out, resume=True, **SMALL).history) == 3
    with pytest.raises(Misconfigured, match=r"optimizer\.lr"):
        fedblade.run(out=out, resume=True, **{**SMALL, "lr": 0.3})


def test_a_finished_run_is_read_back_without_its_trackers(tmp_path, monkeypatch):
    out = tmp_path / "run"
    fedblade.run(out=out, **SMALL)
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config.replace("trackers = []", 'trackers = ["mlflow"]'))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert len(fedblade.run(out=out, resume=True).history) == 3
    assert json.loads((out / "summary.json").read_text())["status"] == "finished"
