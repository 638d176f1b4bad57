"""A run on a split that was saved: the split of the run that made it, and no other one under the same name."""

import json

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.figures._settings import split_name
from fedblade.partitions import save_split
from fedblade.runs import execute, load_config, split_clients

KEYS = {
    "dataset": "digits", "model": "mlp", "hidden": [8], "dim": 6, "method": "fedavg", "num_clients": 4,
    "clients_per_round": 2, "rounds": 1, "epochs": 1, "device": "cpu",
}  # fmt: skip


def test_a_run_takes_its_split_from_a_file_and_refuses_another_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn, _ = load_config(None, {**KEYS, "partition": "dirichlet_clients", "alpha": 0.2, "deal": "samples"})
    split = split_clients(drawn, drawn.dataset.make()).train
    file = tmp_path / "split.json"
    save_split(file, split)
    config, _ = load_config(None, {**KEYS, "partition": "file", "partition.path": "split.json"})
    execute(config, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "partition.json").read_text())["digest"] == split.digest()
    execute(config, out=tmp_path / "run", resume=True)
    content = json.loads(file.read_text())
    content["clients"].reverse()
    file.write_text(json.dumps(content))
    with pytest.raises(Misconfigured, match=r"the file 'split.json' was changed since '.*run' was started"):
        execute(config, out=tmp_path / "run", resume=True)
    file.unlink()
    assert execute(config, out=tmp_path / "run", resume=True).history


def test_figures_tell_the_dirichlet_splits_apart():
    suffixes = ("", "_clients", "_groups")
    names = [split_name({"partition.name": f"dirichlet{kind}", "partition.alpha": "0.1"}) for kind in suffixes]
    assert names == ["α = 0.1", "α = 0.1, client-wise", "α = 0.1, in groups"]
