"""Every example runs, and does what its text says."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import fedblade
from fedblade.core.registry import ENTRY_POINT_GROUP

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"rounds": 2, "num_clients": 4, "clients_per_round": 2, "epochs": 1}


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_parts_work_by_reference():
    file = EXAMPLES / "own_parts.py"
    result = fedblade.run(
        method=f"{file}:smooth",
        model=f"{file}:two_layers",
        partition=f"{file}:EvenOdd",
        width=16,
        smoothing=0.3,
        **SMALL,
    )
    assert result.summary["status"] == "finished"
    assert result.model.features(_images()).shape == (3, 32)
    with pytest.raises(fedblade.core.errors.Misconfigured, match="smoothing"):
        fedblade.run(method=f"{file}:smooth", smothing=0.3, **SMALL)


def test_own_parts_combine_with_built_in_regularisers():
    result = fedblade.run(method=f"{EXAMPLES / 'own_parts.py'}:smooth+feddecorr", **SMALL)
    assert "loss_decorr" in result.history[0]


def test_the_even_odd_partition_splits_by_parity():
    module = load("own_parts")
    split = module.EvenOdd().split([0, 1, 2, 3] * 30, 4, seed=0)
    table = split.table()
    assert (table[0::2][:, [1, 3]] == 0).all()
    assert (table[1::2][:, [0, 2]] == 0).all()
    assert table.sum() == 120


def test_own_parts_script_runs_from_the_command_line(capsys):
    load("own_parts").main()
    printed = capsys.readouterr().out
    assert "even and odd clients" in printed
    assert "two moons" in printed


def test_own_loop_shows_that_decorrelation_opens_the_spectrum():
    module = load("own_loop")
    plain_accuracy, plain_rank = module.train(0.0)
    accuracy, rank = module.train(0.0005)
    assert min(plain_accuracy, accuracy) > 80
    assert rank > plain_rank + 1


def test_an_installed_package_announces_its_parts(tmp_path):
    """The same metadata that pip writes for `examples/plugin_package`, on the path of a fresh process."""
    info = tmp_path / "fedblade_hello-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fedblade-hello\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nhello = fedblade_hello\n")
    (tmp_path / "fedblade_hello.py").write_text((EXAMPLES / "plugin_package" / "fedblade_hello.py").read_text())
    listed = subprocess.run(
        [sys.executable, "-m", "fedblade", "list", "methods"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hello" in listed.stdout
    assert "stays near the global model" in listed.stdout


def _images():
    import torch

    return torch.zeros(3, 1, 8, 8)
