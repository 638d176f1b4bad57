"""A run on disk counts, and goes on, only if today's code and data would make the same one."""

import json
import logging
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedblade
from fedblade.config.run_config import complete_config
from fedblade.core import local
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import Entry, heads, methods, models, partitions, regularisers
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.data import as_dataset
from fedblade.results import RunDirectory
from fedblade.runs import RunListener, _revisions
from fedblade.runs._revisions import revisions_of
from fedblade.studies import PlannedRun, run_planned

SMALL = {
    "federation": {"num_clients": 2, "clients_per_round": 2, "rounds": 2},
    "dataset": {"name": "digits"},
    "partition": {"name": "iid"},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg+feddecorr"},
}


class StopAfterOne(RunListener):
    def on_round(self, record):
        raise KeyboardInterrupt


def carry_out(*cells, listener=None):
    return run_planned(cells, lambda label: nullcontext(listener or RunListener()))


def raise_revision(monkeypatch, registry, name):
    entry = registry.get(name)
    monkeypatch.setitem(registry._entries, name, replace(entry, revision=entry.revision + 1))


def test_a_run_stores_the_revisions_of_the_parts_it_uses_and_no_others():
    used = revisions_of(complete_config(SMALL))
    assert list(used) == [
        "method fedavg", "regulariser feddecorr", "head linear", "model mlp", "partition iid", "local loop",
    ]  # fmt: skip
    assert "fine-tuning" in revisions_of(complete_config(SMALL | {"method": {"name": "fedavg-ft"}}))
    assert "head etf_projector" in revisions_of(complete_config(SMALL | {"method": {"name": "fedetf"}}))


@pytest.mark.parametrize("rounds", [1, 2])
def test_other_revisions_are_refused_by_name_and_parts_that_are_not_used_do_not_matter(tmp_path, monkeypatch, rounds):
    """Whether the run was cut short after a round or finished."""
    cell = PlannedRun("one", tmp_path / "one", complete_config(SMALL))
    with pytest.raises(KeyboardInterrupt) if rounds == 1 else nullcontext():
        carry_out(cell, listener=StopAfterOne() if rounds == 1 else None)
    partition = (cell.folder / "partition.json").read_bytes()
    stored = json.loads(partition)
    assert stored["revisions"] == revisions_of(cell.config)
    assert json.loads((cell.folder / "summary.json").read_text())["revisions"] == stored["revisions"]
    changes = (
        ("method fedavg", lambda patch: raise_revision(patch, methods, "fedavg")),
        ("regulariser feddecorr", lambda patch: raise_revision(patch, regularisers, "feddecorr")),
        ("head linear", lambda patch: raise_revision(patch, heads, "linear")),
        ("model mlp", lambda patch: raise_revision(patch, models, "mlp")),
        ("partition iid", lambda patch: raise_revision(patch, partitions, "iid")),
        ("local loop", lambda patch: patch.setattr(_revisions, "LOCAL_LOOP_REVISION", local.LOCAL_LOOP_REVISION + 1)),
    )
    for part, change in changes:
        with monkeypatch.context() as patch:
            change(patch)
            today = PlannedRun("one", cell.folder, complete_config(SMALL))
            then, now = stored["revisions"][part], revisions_of(today.config)[part]
            with pytest.raises(Misconfigured, match=f"{part} of revision {then}, .* revision {now},.* another --out"):
                carry_out(today)
            assert not today.is_finished
            with pytest.raises(Misconfigured, match=part):
                carry_out(PlannedRun("new", tmp_path / "new", complete_config(SMALL)), today)
            assert not (tmp_path / "new").exists()
            # A folder of before there were revisions counts as revision 0.
            old = {key: value for key, value in stored.items() if key != "revisions"}
            (cell.folder / "partition.json").write_text(json.dumps(old))
            record = (cell.folder / "folder.json").read_bytes()
            (cell.folder / "folder.json").unlink()
            with pytest.raises(Misconfigured, match=f"{part} of revision 0, .* revision {now}"):
                fedblade.run(out=cell.folder, resume=True)
            (cell.folder / "partition.json").write_bytes(partition)
            (cell.folder / "folder.json").write_bytes(record)
    raise_revision(monkeypatch, methods, "fedprox")
    assert carry_out(PlannedRun("one", cell.folder, complete_config(SMALL))) == {}
    assert fedblade.run(out=cell.folder, resume=True).summary["rounds"] == 2


def test_a_model_of_the_users_own_has_a_revision_too(tmp_path, monkeypatch):
    """Passed from Python, by reference or of a plugin: the library does the same with each."""
    file = tmp_path / "mine.py"
    file.write_text("from torch import nn\ndef net(input_shape):\n    return nn.Flatten()\n")
    plugin = Entry("theirs", models.get(f"{file}:net").make, revision=3)
    monkeypatch.setitem(models._entries, "theirs", plugin)
    for name, own in (("object", 0), (f"{file}:net", 0), ("theirs", 3), ("mlp", None)):
        config = complete_config(SMALL | {"model": {"name": name}})
        before = revisions_of(config)[f"model {name}"]
        with monkeypatch.context() as patch:
            patch.setattr(_revisions, "USER_MODULE_REVISION", _revisions.USER_MODULE_REVISION + 1)
            assert revisions_of(config)[f"model {name}"] == before + (own is not None)
        assert own is None or before == own + _revisions.USER_MODULE_REVISION


def save_arrays(path, seed):
    x = np.random.default_rng(seed).normal(size=(24, 4)).astype(np.float32)
    y = np.arange(24) % 3
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_a_finished_run_on_other_data_is_refused_and_one_on_absent_data_counts(tmp_path, caplog):
    path = tmp_path / "mine.npz"
    save_arrays(path, 1)
    config = complete_config(SMALL | {"dataset": {"name": "arrays", "path": str(path)}})
    cells = [PlannedRun(name, tmp_path / name, config) for name in ("one", "two")]
    assert carry_out(*cells) == {}
    save_arrays(path, 2)
    with pytest.raises(Misconfigured, match=r"data set differs .*one' .* then arrays in an .npz file .* another --out"):
        carry_out(*cells)
    with pytest.raises(Misconfigured, match="data set differs"):
        fedblade.run(out=cells[0].folder, resume=True)
    path.unlink()
    with caplog.at_level(logging.WARNING, "fedblade"):
        assert carry_out(*cells) == {}
    assert [each.message for each in caplog.records if "could not be compared" in each.message] == [
        f"runs on disk are reused although their data could not be compared: '{path}' does not exist. Give the "
        f"path of a file with arrays x_train, y_train, x_test, y_test."
    ]


def test_a_setting_that_came_later_than_the_run_has_its_default(tmp_path):
    cell = PlannedRun("one", tmp_path / "one", complete_config(SMALL))
    with pytest.raises(KeyboardInterrupt):
        carry_out(cell, listener=StopAfterOne())
    lines = (cell.folder / "config.toml").read_text().splitlines(keepends=True)
    old = "".join(line for line in lines if not line.startswith(("neck_norm", "last_batch")))
    (cell.folder / "config.toml").write_text(old)
    (cell.folder / "folder.json").unlink()
    for checkpoint in (cell.folder / "checkpoints").glob("*.safetensors"):
        write_tensors(checkpoint, read_tensors(checkpoint)[0], {"round": 1})
    changed = SMALL | {"local": {"last_batch": "drop"}}
    with pytest.raises(Misconfigured, match=r"local\.last_batch = 'keep', now it is 'drop'"):
        carry_out(
            PlannedRun("new", tmp_path / "new", complete_config(SMALL)),
            PlannedRun("one", cell.folder, complete_config(changed)),
        )
    assert not (tmp_path / "new").exists()
    assert carry_out(cell) == {}
    assert len(RunDirectory(cell.folder).history()) == 2


def test_data_passed_from_python_are_compared(tmp_path):
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)).numpy()
    y = np.arange(24) % 3
    keys = {"model": "mlp", "partition": "iid", "num_clients": 2, "clients_per_round": 2, "rounds": 1}
    fedblade.run("quickstart", out=tmp_path / "run", dataset=(x, y, x, y), **keys)
    with pytest.raises(Misconfigured, match="then given from Python"):
        fedblade.run("quickstart", out=tmp_path / "run", resume=True, dataset=(x + 1, y, x, y), **keys)


def test_tables_of_bytes_that_were_once_divided_are_other_data():
    x, y = np.arange(48, dtype=np.uint8).reshape(12, 4), np.arange(12) % 3
    table = as_dataset((x, y, x, y))
    assert table.unit == 1.0
    assert table.digest() != replace(table, unit=255.0).digest()
    numbers = as_dataset((x.astype(np.float32), y, x.astype(np.float32), y))
    assert numbers.digest() == replace(numbers, unit=255.0).digest()


def test_settings_that_a_finished_run_does_not_take_are_named_and_others_refused(tmp_path, caplog):
    config = complete_config(SMALL)
    carry_out(PlannedRun("one", tmp_path / "one", config))
    before = (tmp_path / "one" / "history.jsonl").read_bytes()
    with caplog.at_level(logging.WARNING, "fedblade.studies"):
        carry_out(
            PlannedRun("one", tmp_path / "one", complete_config(SMALL | {"evaluation": {"metrics": ["accuracy"]}}))
        )
    assert "finished stay as they are, without evaluation.metrics = ['accuracy'] (before: " in caplog.text
    with pytest.raises(Misconfigured, match=r"optimizer\.lr"):
        carry_out(PlannedRun("one", tmp_path / "one", complete_config(SMALL | {"optimizer": {"lr": 0.5}})))
    assert (tmp_path / "one" / "history.jsonl").read_bytes() == before
