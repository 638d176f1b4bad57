"""The pages under docs/methods are what the methods say today."""

import importlib.util
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("build_methods", DOCS / "build_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("docs") / "methods"
    folder.mkdir()
    (folder / "gone.md").write_text("a method that is no more")
    module.build(folder)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_the_committed_pages_are_current(built):
    committed = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "methods").iterdir()}
    stale = sorted(name for name in built.keys() | committed.keys() if built.get(name) != committed.get(name))
    assert not stale, f"docs/methods is out of date: run `make cards` and commit {', '.join(stale)}"


def test_there_is_a_page_for_every_link_and_none_for_methods_that_are_gone(built):
    linked = {line.split("](")[1].split(")")[0] for line in built["README.md"].splitlines() if line.startswith("| [")}
    assert built.keys() == linked | {"README.md"}
    assert "fedblade.md" in linked


def test_pages_depend_on_no_machine(built):
    text = "".join(built.values())
    for fact in (str(Path.home()), str(DOCS.parent), torch.__version__, "cuda"):
        assert fact not in text, fact
