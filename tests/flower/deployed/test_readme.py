"""The commands for more than one machine, in their order, and the model that all of them give."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
from support.processes import HUNG_SECONDS

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to-scale.md").read_text(encoding="utf-8")
TINY = {
    "num_clients": 2, "clients_per_round": 2, "rounds": 1, "epochs": 1, "model": "mlp", "hidden": [16], "dim": 12,
    "device": "cpu", "method": "fedblade", "metrics": "accuracy",
}  # fmt: skip
SETTINGS = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]


def section() -> list[str]:
    """The commands under the heading, without comments."""
    (text,) = re.findall(r"^## Beyond one machine\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def smaller(command: str) -> list[str]:
    """The command with settings that let it end in seconds, and with a folder for its run."""
    words = shlex.split(command)
    if words[0] == "torchrun":
        return [*words, *SETTINGS, "--out", "shared"]
    match words[2]:
        case "init":
            return [*words, *SETTINGS]
        case "up":
            return [*words, "--nodes", "2"]
        case "run":
            return [*words, "--out", "deployed"]
        case _:
            return words


def plant(folder: Path) -> None:
    """Modules in the folder where the commands are given; no process of a federation may import one."""
    for name in ("flwr", "fedblade", "torch"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'has run')!r}, 'w').close()\nraise SystemExit\n")


def test_they_give_the_model_of_one_process(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def call(words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HUNG_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    commands = section()
    assert [" ".join(shlex.split(each)[:3]) for each in commands[1:]] == [
        f"fedblade flower {name}" for name in ("init", "up", "run", "down")
    ]
    try:
        printed = [call(smaller(commands[0]))]
        plant(tmp_path)
        printed += [call(smaller(command)) for command in commands[1:]]
    finally:
        subprocess.run(["fedblade", "flower", "down", "app"], cwd=tmp_path, env=environment, capture_output=True)
    assert printed[3].splitlines()[-1] == "deployed"
    call(["fedblade", "run", "app/fedblade.toml", "--engine", "sequential", "--out", "alone", "--quiet"])
    files = [tmp_path / run / "model.safetensors" for run in ("alone", "deployed", "shared")]
    alone, deployed, shared = (file.read_bytes() for file in files)
    assert deployed == alone
    assert shared == alone
    assert not (tmp_path / "has run").exists()
