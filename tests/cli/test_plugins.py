"""Parts of other people's: in a file, used by reference, and in an installed package, used by name."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PARTS = '''
"""A package with one part of every kind."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedblade.core.method import Method
from fedblade.core.registry import datasets, heads, losses, methods, models, partitions
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.data import Dataset, as_dataset
from fedblade.methods.fedavg import fedavg
from fedblade.partitions import Partitioner


@losses.register("acme_loss")
@dataclass(frozen=True, kw_only=True)
class AcmeLoss(Term):
    """Cross-entropy of doubled logits, made by Acme."""

    name: ClassVar[str] = "acme"
    supervised: ClassVar[bool] = True
    gain: float = 2.0

    def __call__(self, view):
        return TermValue(nn.functional.cross_entropy(self.gain * view.logits, view.labels))


@heads.register("acme_head")
@dataclass(frozen=True)
class AcmeHead(Head):
    """A linear head without bias, made by Acme."""

    def init(self, dim, num_classes, streams):
        weight = torch.randn(num_classes, dim, generator=streams.torch("init", 1)) / dim**0.5
        return HeadTensors({"head.weight": weight}, {})

    def __call__(self, params, fixed, features):
        return HeadOutput(features @ params["head.weight"].T, features)


@methods.register("acme_method")
def acme_method(gain: float = 2.0) -> Method:
    """FedAvg with Acme's head and loss.

    Objective: CE(gain·Wz, y).
    """
    return replace(fedavg(), head=AcmeHead(), losses=(AcmeLoss(gain=gain),))


@models.register("acme_model")
def acme_model(input_shape: tuple[int, ...], width: int = 5) -> nn.Module:
    """One linear layer, made by Acme."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), width))


@datasets.register("acme_data")
def acme_data(count: int = 60) -> Dataset:
    """Points in a plane, made by Acme."""
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    y = np.arange(count) % 3
    return as_dataset((x, y, x, y))


@partitions.register("acme_partition")
@dataclass(frozen=True)
class AcmePartition(Partitioner):
    """Sample i goes to client i modulo K, made by Acme."""

    shift: int = 0

    def divide(self, request):
        return request.by_owner((np.arange(len(request.labels)) + self.shift) % request.num_clients)
'''
KINDS = {
    "method": "acme_method",
    "loss": "acme_loss",
    "head": "acme_head",
    "model": "acme_model",
    "dataset": "acme_data",
    "partition": "acme_partition",
}
PLURALS = {"loss": "losses"}
SIZE = ["--set", "num_clients=4", "--set", "clients_per_round=2", "--set", "rounds=2"]
NAMES = {"method": "acme_method", "model": "acme_model", "dataset": "acme_data", "partition": "AcmePartition"}


def install(folder: Path, code: str = PARTS, target: str = "acme_parts") -> str:
    """What pip leaves behind: a module and a dist-info with an entry point; returns the PYTHONPATH."""
    (folder / "acme_parts.py").write_text(code, encoding="utf-8")
    info = folder / "acme_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fedblade.plugins]\nacme = {target}\n")
    return str(folder)


@pytest.fixture
def site(tmp_path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def settings(prefix: str = "", names: dict[str, str] = NAMES) -> list[str]:
    return [part for kind, name in names.items() for part in ("--set", f"{kind}={prefix}{name}")]


def test_parts_in_a_file_are_used_by_reference(cli, tmp_path):
    (tmp_path / "own.py").write_text(PARTS, encoding="utf-8")
    knobs = ["--set", "gain=3.0", "--set", "width=6", "--set", "count=90", "--set", "shift=1"]
    cli("run", *settings("own.py:"), *knobs, *SIZE, "--out", "mine").done()
    config = tomllib.loads((tmp_path / "mine" / "config.toml").read_text())
    assert config["method"] == {"name": f"{tmp_path / 'own.py'}:acme_method", "gain": 3.0}
    assert (config["model"]["width"], config["dataset"]["count"], config["partition"]["shift"]) == (6, 90, 1)
    partition = json.loads((tmp_path / "mine" / "partition.json").read_text())
    assert [sum(row) for row in partition["counts"]] == [22, 23, 23, 22]
    assert "loss_acme" in json.loads((tmp_path / "mine" / "history.jsonl").read_text().splitlines()[0])


def test_a_data_set_in_a_file_may_be_four_arrays(cli, tmp_path):
    code = "import numpy as np\ndef points():\n    x, y = np.eye(60, 4), np.arange(60) % 3\n    return x, y, x, y\n"
    (tmp_path / "own.py").write_text(code)
    chosen = ["--set", "dataset=own.py:points", "--set", "model=mlp", "--set", "partition=iid"]
    cli("run", *chosen, *SIZE, "--out", "mine").done()
    counts = json.loads((tmp_path / "mine" / "partition.json").read_text())["counts"]
    assert sum(map(sum, counts)) == 60


def test_knobs_of_a_part_in_a_file_are_checked(cli, tmp_path):
    (tmp_path / "own.py").write_text(PARTS, encoding="utf-8")
    assert "'gain'" in cli("run", *settings("own.py:"), "--set", "gian=3.0").mistake()
    assert 'method.gain = "much"' in cli("run", *settings("own.py:"), "--set", "gain=much").mistake()


def test_a_method_in_a_file_takes_regularisers_and_has_a_card(cli, tmp_path):
    (tmp_path / "own.py").write_text(PARTS, encoding="utf-8")
    text = cli("show", "own.py:acme_method+feddecorr").done().out
    assert "CE(gain·Wz, y)" in text
    assert "gain = 2.0" in text
    assert "acme: weight 1" in text
    assert "decorr: weight 0.1" in text


def test_methods_in_files_can_be_compared(cli, small, tmp_path):
    (tmp_path / "own.py").write_text(PARTS, encoding="utf-8")
    methods = "fedavg,own.py:acme_method"
    answer = cli("compare", *small, "--methods", methods, "--seeds", "1", "--out", "c").done()
    assert answer.last == "c/report.html"
    folders = [path.name for path in (tmp_path / "c").iterdir() if path.is_dir()]
    assert len(folders) == 2


def test_a_run_with_parts_in_a_file_resumes_and_loads(cli, tmp_path):
    (tmp_path / "own.py").write_text(PARTS, encoding="utf-8")
    cli("run", *settings("own.py:"), *SIZE, "--out", "mine").done()
    assert "finished" in cli("run", "--resume", "--out", "mine").done().out


def test_an_installed_package_gives_parts_by_name(fresh_cli, site, tmp_path):
    path = install(site)
    names = NAMES | {"partition": "acme_partition"}
    fresh_cli("run", *settings("", names), *SIZE, "--out", "mine", PYTHONPATH=path).done()
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert {kind: summary[kind] for kind in ("method", "model", "partition")} == {
        kind: names[kind] for kind in ("method", "model", "partition")
    }


@pytest.mark.thorough
def test_parts_of_an_installed_package_are_listed(site):
    """One process for all kinds: `fedblade list KIND --json` for each."""
    code = (
        "import json, sys\n"
        "from fedblade.cli import app\n"
        "for kind in sys.argv[1:]:\n"
        "    app(['list', kind, '--json'], standalone_mode=False)\n"
        "    print('---')\n"
    )
    command = [sys.executable, "-c", code, *(PLURALS.get(kind, f"{kind}s") for kind in KINDS)]
    env = os.environ | {"PYTHONPATH": install(site)}
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split("---\n")
    for text, name in zip(listed, KINDS.values(), strict=False):
        assert "Acme" in {row["name"]: row["summary"] for row in json.loads(text)}[name]


@pytest.mark.thorough
def test_a_name_of_an_installed_package_is_suggested(fresh_cli, site):
    path = install(site)
    answer = fresh_cli("run", "--set", "method=acme_metod", PYTHONPATH=path)
    assert "'acme_method'" in answer.mistake()


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["acme_missing", "acme_parts:no_such_name"])
def test_a_broken_package_is_named_and_does_not_break_the_rest(fresh_cli, site, target):
    path = install(site, target=target)
    answer = fresh_cli("list", "methods", PYTHONPATH=path)
    assert answer.status == 0
    assert "fedavg" in answer.out
    assert "acme" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.thorough
def test_a_package_that_takes_a_name_already_taken_is_named(fresh_cli, site):
    path = install(site, PARTS.replace('"acme_method"', '"fedavg"'))
    answer = fresh_cli("list", "methods", PYTHONPATH=path)
    assert "acme_parts" in answer.err
    assert "fedavg" in answer.err
    assert "Traceback" not in answer.err
