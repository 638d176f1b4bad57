"""I compare two methods and mail the report to a colleague, who has only that file."""

import base64
import csv
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ("--set", "model=mlp", "--set", "rounds=2", "--set", "num_clients=6", "--set", "clients_per_round=3")
FEDBLADE = Path(sys.executable).with_name("fedblade")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the comparison."""
    out = tmp_path_factory.mktemp("shared") / "my study"
    command = [FEDBLADE, "compare", "--methods", "fedavg,fedprox", "--seeds", "1,2", *SETTINGS, "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def saved(page: str, name: str) -> str:
    """The content of a file that the page carries."""
    found = re.search(rf'<a download="{re.escape(name)}" href="data:[^;]*;base64,([^"]*)"', page)
    assert found is not None
    return base64.b64decode(found[1]).decode()


def test_the_numbers_can_be_read_without_the_run_folders(page):
    rows = list(csv.DictReader(saved(page, "results.csv").splitlines()))

    assert [row["label"] for row in rows] == ["fedavg", "fedprox"]
    assert all(0 <= float(row["last10_mean"]) <= 100 for row in rows)
    assert "the 95 % interval of the difference is" in page.lower()


def test_the_command_on_the_page_gives_the_same_numbers_again(page, folder, tmp_path):
    (tmp_path / "fedprox.toml").write_text(saved(page, "fedprox.toml"), encoding="utf-8")
    commands = [html.unescape(found) for found in re.findall(r"<code>(for seed in .*?; done)</code>", page)]
    assert len(commands) == 2

    command = commands[1].replace("fedblade", str(FEDBLADE))
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True, timeout=300)

    again = sorted(tmp_path.glob("runs/*/summary.json"))
    accuracies = [json.loads(path.read_text())["final_accuracy"] for path in again]
    first = [json.loads((folder / f"fedprox-seed{seed}" / "summary.json").read_text()) for seed in (1, 2)]
    assert sorted(accuracies) == sorted(summary["final_accuracy"] for summary in first)
