"""The notebooks in docs/notebooks are what their scripts say, and run from top to bottom."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

DOCS = Path(__file__).parents[1] / "docs"
SCRIPTS = sorted((DOCS / "notebooks").glob("*.py"))
RUN = """
import os, sys, nbformat, build_notebooks as builder
from pathlib import Path
os.environ.update(builder.ENVIRONMENT)
nbformat.write(builder.execute(builder.unexecuted(Path(sys.argv[1]), *sys.argv[3:])), sys.argv[2])
"""
NAMES = [script.stem for script in SCRIPTS]


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_notebooks", DOCS / "build_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, folder: Path, *parameters: str):
    """A notebook that another process has run in an empty folder; parameters take the place of their cell."""
    script, target = DOCS / "notebooks" / f"{name}.py", folder / f"{name}.ipynb"
    command = [sys.executable, "-c", RUN, script, target, *parameters]
    environment = os.environ | {"PYTHONPATH": str(DOCS)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return nbformat.read(target, as_version=4)


def pictures(notebook) -> int:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_there_are_four():
    assert len(NAMES) == 4
    assert all(name.startswith("tutorial-") for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_is_that_of_its_script_with_all_outputs(builder, name):
    file = DOCS / "notebooks" / f"{name}.ipynb"
    stored, expected = nbformat.read(file, as_version=4), builder.unexecuted(file.with_suffix(".py"))
    assert [cell.source for cell in stored.cells] == [cell.source for cell in expected.cells], "run `make notebooks`"
    assert [cell.execution_count for cell in stored.cells if cell.cell_type == "code"] == list(
        range(1, 1 + sum(cell.cell_type == "code" for cell in stored.cells))
    )
    assert pictures(stored) >= 1
    text = file.read_text(encoding="utf-8")
    assert '"output_type": "error"' not in text
    assert len(text) < 300_000
    for folder in (Path.home(), DOCS.parent, "/tmp"):
        assert f"{folder}/" not in text
    assert json.loads(text)["metadata"]["language_info"] == {"name": "python"}


@pytest.mark.thorough
def test_a_notebook_runs_cut_small(tmp_path):
    assert pictures(run("tutorial-own-data-and-model", tmp_path, "ROUNDS = 2")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_runs_whole(tmp_path, name):
    assert pictures(run(name, tmp_path)) >= 1
