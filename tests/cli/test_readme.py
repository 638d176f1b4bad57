"""Every command of the README and of the page on the command line runs, with few clients and one round."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import fedblade

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOVED = [ROOT / "docs" / f"how-to-{name}.md" for name in ("commands", "personal-models")]
PAGES = "\n".join([README, *(page.read_text(encoding="utf-8") for page in MOVED)])
TINY = {"num_clients": 4, "clients_per_round": 2, "rounds": 1, "epochs": 1, "model": "mlp", "hidden": [16], "dim": 12}
SETTINGS = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
SMALLER = {
    "run": SETTINGS,
    "compare": [*SETTINGS, "--seeds", "1"],
    "sweep": [*SETTINGS, "--seeds", "1"],
    "reproduce": ["--dry-run"],
    "bench": ["float32", "--repeat", "1"],
    "report": ["--formats", "svg", "--columns", "1"],
    **dict.fromkeys(("data", "list", "show", "partition", "watch", "doctor"), ()),
}
"""What is added to a command so that it ends in a second; a command that is not here has no test."""
PRINTS = {
    "fedblade compare --methods fedblade": ("fedblade", "report.html"),
    "fedblade compare --methods fedavg,": ("fedavg", "fedprox", "fedblade", "report.html"),
    "fedblade sweep": ("0.01", "0.02", "0.05", "report.html"),
    "fedblade reproduce": ("FedBlade", "FedAvg"),
    "fedblade list methods": ("fedavg", "local_dr"),
    "fedblade show": ("Objective", "Knobs", "What travels", "State"),
    "fedblade partition --set alpha=0.05 --compare": ("dirichlet_groups", "deal=samples"),
    "fedblade partition": ("A client sees",),
    "fedblade report": ("report.html",),
    "fedblade watch": ("round 1 of 1",),
    "fedblade bench": ("fedavg, one round", "fedblade, one step"),
    "fedblade doctor": ("torch", "data cifar10"),
}
ELSEWHERE = ("torchrun ", "fedblade flower ")
"""Commands of several processes; tests/flower/deployed runs them in their order."""
LEAVES = {
    "fedblade partition --set alpha=0.05 --plot": ["split.svg"],
    "fedblade partition --save": ["split.json"],
    "fedblade report": ["figures/*.svg"],
    "fedblade run": ["runs/*/summary.json"],
}


def blocks(language: str, text: str = PAGES) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(start: str) -> list[str]:
    """The lines of all shell blocks that begin so, without comments."""
    lines = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    plain = [line.removeprefix(".venv/bin/") for line in lines]
    return [line for line in plain if line.startswith(start) and not line.startswith(ELSEWHERE)]


def expected(table: dict, command: str):
    return next((value for start, value in table.items() if command.startswith(start)), ())


def test_every_line_of_a_shell_block_is_a_command_that_is_tested_here():
    assert len(commands("fedblade ")) + len(commands("make ")) == len(commands(""))
    assert {shlex.split(line)[1] for line in commands("fedblade ")} == set(SMALLER)


@pytest.mark.parametrize("command", commands("make "))
def test_make_has_the_target(command):
    assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("command", [line for line in commands("fedblade ") if " data " not in line])
def test_every_command_runs(cli, tmp_path, command):
    if "…" in command:
        cli("run", *SETTINGS, "--out", "runs/mine").done()
    arguments = shlex.split(command.replace("…", "mine"))[1:]
    answer = cli(*arguments, *SMALLER[arguments[0]]).done()
    assert answer.out.strip()
    for text in expected(PRINTS, command):
        assert text in answer.out
    for pattern in expected(LEAVES, command):
        assert list(tmp_path.glob(pattern))


@pytest.mark.parametrize("command", commands("fedblade data "))
def test_data_that_are_absent_are_asked_for(cli, tmp_path, command):
    name = shlex.split(command)[2]
    advice = cli(*shlex.split(command)[1:], FEDBLADE_DATA=str(tmp_path)).mistake()
    assert name in advice
    assert "--download" in advice


@pytest.fixture
def shortened(monkeypatch) -> Callable[[], list[fedblade.Result]]:
    """Makes `fedblade.run` a short one; returns the results so far."""
    run, results = fedblade.run, []

    def short(*arguments, **settings):
        tiny = {key: value for key, value in TINY.items() if key not in ("model", "hidden", "dim")}
        results.append(run(*arguments, **settings | tiny))
        return results[-1]

    monkeypatch.setattr(fedblade, "run", short)
    return lambda: results


def test_the_lines_of_python_run(shortened, capsys):
    (block,) = blocks("python", README)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    names: dict = {}
    exec(block, names)
    printed = capsys.readouterr().out.splitlines()
    (result,) = shortened()
    assert printed[0].startswith(f"{result.summary['final_accuracy']} tensor([")
    assert 1 < float(printed[1].split()[-1]) <= 128
    assert len(names["features"]) == 64


def test_own_arrays_and_modules_go_in_as_said(shortened):
    (call,) = re.findall(r"^`(fedblade\.run\(.*\))`", README, re.MULTILINE)
    rng = np.random.default_rng(0)
    x, y = rng.random((400, 12), dtype=np.float32), np.arange(400) % 3
    names = {"fedblade": fedblade, "x": x, "y": y, "x_test": x[:30], "y_test": y[:30]}
    result = eval(call, names | {"my_module": nn.Sequential(nn.Linear(12, 8), nn.ReLU())})
    assert (result.summary["status"], result.summary["method"]) == ("finished", "fedprox+feddecorr")
    assert len(shortened()) == 1
