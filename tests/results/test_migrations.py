"""Every step from one format of run folders to the next: a folder of the earlier format is one of today's."""

import hashlib
import json
import re

import pytest
import tomli_w

import fedblade
from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.core.nested import dotted
from fedblade.report import build_report
from fedblade.results import RunDirectory, _migrations, read_record, read_runs
from fedblade.results._migrations import STEPS, Step, is_later_setting, with_later_settings
from fedblade.runs import RunListener

SMALL = {
    "model": "mlp", "hidden": [8], "dim": 6, "num_clients": 4, "clients_per_round": 2, "rounds": 4,
    "metrics": "accuracy", "device": "cpu", "method": "fedavg",
}  # fmt: skip


class StopAfterTwo(RunListener):
    """Interrupts a run after its second round."""

    def on_round(self, record):
        if record["round"] == 2:
            raise KeyboardInterrupt


def results_of(folder):
    """What two runs must share: the history without its seconds, and the model."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    history = [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]
    return history, (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of the run of these tests, undisturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    fedblade.run("quickstart", out=folder, listener=RunListener(), **SMALL)
    return results_of(folder)


@pytest.fixture
def cut_short(tmp_path):
    """Makes the same run, stopped after its second round."""

    def cut():
        with pytest.raises(KeyboardInterrupt):
            fedblade.run("quickstart", out=tmp_path / "run", listener=StopAfterTwo(), **SMALL)
        return tmp_path / "run"

    return cut


def go_on(folder):
    fedblade.run(out=folder, resume=True, listener=RunListener())
    return results_of(folder)


def write_record(folder, contents):
    """Write `folder.json` with a seal that fits."""
    contents = {key: value for key, value in contents.items() if key != "seal"}
    seal = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
    (folder / "folder.json").write_text(json.dumps(contents | {"seal": seal}))


def stored_record(folder):
    return json.loads((folder / "folder.json").read_text())


def without(config, settings):
    """A configuration without settings that came later."""
    return {
        key: {name: each for name, each in value.items() if name not in settings.get(key, {})}
        if isinstance(value, dict)
        else value
        for key, value in config.items()
        if key not in settings.get("", {})
        and not (isinstance(value, dict) and value.keys() <= settings.get(key, {}).keys())
    }


def test_settings_that_came_later_are_allowed_and_stay_as_the_steps_say():
    config = complete_config({"dataset": {"name": "digits"}, "partition": {"name": "iid"}, "model": {"name": "mlp"},
                              "method": {"name": "fedavg"}}).table()  # fmt: skip
    for step in STEPS:
        older = without(config, step.settings)
        assert older.keys() < config.keys() or older != config
        filled = dotted(complete_config(with_later_settings(older)).table())
        for key, value in dotted(step.settings).items():
            assert filled[key.lstrip(".")] == value
            assert is_later_setting(key.lstrip("."), value)


def test_a_setting_that_a_folder_has_stays():
    assert with_later_settings({"tf32": True, "local": {"steps": 3}})["tf32"] is True
    assert with_later_settings({"local": {"steps": 3, "epochs": 1}})["local"] == {"steps": 3, "epochs": 1}
    assert not is_later_setting("local.steps", 3)
    assert not is_later_setting("optimizer.lr", 0.01)


def test_from_format_0_to_1(cut_short, whole):
    """No folder.json, no journal, and settings missing: the checkpoints still fit, because the digest is the same."""
    folder = cut_short()
    (folder / "folder.json").unlink()
    (folder / "checkpoints" / "journal.jsonl").unlink()
    older = without(RunDirectory(folder).stored_config(), STEPS[0].settings)
    assert "distributed" not in older
    assert "steps" not in older["local"]
    (folder / "config.toml").write_text(tomli_w.dumps(older))
    (record,) = read_runs([folder])
    assert (record.config["local"]["steps"], record.edited, record.left_out) == ("none", (), ())
    assert go_on(folder) == whole
    assert stored_record(folder)["format"] == _migrations.newest_format()


NEXT = Step(
    files="Tests: a setting is new, and a field has another name.",
    settings={"optimizer": {"clip": "none"}},
    contents=lambda contents: {**contents, "run": contents["identity"]},
)
"""How a step of the future may look."""


@pytest.mark.parametrize("lost", ["", "folder.json", "partition.json"])
def test_from_the_present_format_to_a_next_one(cut_short, whole, monkeypatch, tmp_path, lost):
    monkeypatch.setattr(_migrations, "STEPS", (*STEPS, NEXT))
    folder = cut_short()
    contents = stored_record(folder)
    older = without(contents["config"], NEXT.settings)
    write_record(folder, {**contents, "format": len(STEPS), "identity": contents["run"], "run": "", "config": older})
    (folder / "config.toml").write_text(tomli_w.dumps(older))
    assert read_record(folder).config["optimizer"]["clip"] == "none"
    build_report([folder], tmp_path / "page.html")
    if lost:
        (folder / lost).unlink()
    assert go_on(folder) == whole
    assert stored_record(folder)["format"] == len(STEPS) + 1
    assert stored_record(folder)["run"] == contents["run"]


def test_a_newer_format_is_refused_even_if_it_is_sealed_in_another_way(cut_short, tmp_path):
    folder = cut_short()
    newer = {**stored_record(folder), "format": 99, "fedblade": "7.0", "seal": "of another kind"}
    (folder / "folder.json").write_text(json.dumps(newer))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    uses = (
        lambda: fedblade.run(out=folder, resume=True),
        lambda: fedblade.load(folder),
        lambda: build_report([folder], tmp_path / "page.html"),
    )
    for use in uses:
        with pytest.raises(Misconfigured, match=re.escape("pip install 'fedblade>=7.0'")):
            use()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_damaged_number_of_the_format_is_no_newer_version(cut_short, whole):
    folder = cut_short()
    (folder / "folder.json").write_text(json.dumps({**stored_record(folder), "format": 3}))
    assert go_on(folder) == whole
    assert stored_record(folder)["format"] == _migrations.newest_format()
