"""The extension API: its names exist and are explained, and examples and pages use nothing else."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedblade
from fedblade import api

ROOT = Path(__file__).parents[1]
PUBLIC = ("api", "data", "diagnostics", "heads", "losses", "models", "partitions")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def imported_modules(code: str) -> set[str]:
    """The modules of this library that the code imports, and the names that it takes from the root."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            from_root = node.module == "fedblade"
            names |= {f"fedblade.{alias.name}" for alias in node.names} if from_root else {node.module}
    return {name for name in names if name.partition(".")[0] == "fedblade"}


def is_public(module: str) -> bool:
    """Whether a module, or a name of the root, belongs to the documented API."""
    _, *parts = module.split(".")
    if not parts:
        return True
    return parts[0] in (*PUBLIC, *fedblade.__all__) and not any(part.startswith("_") for part in parts[1:])


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_of_the_api_exists_and_is_explained(name):
    assert inspect.getdoc(getattr(api, name))


def test_the_api_lists_every_name_in_its_docstring():
    missing = [name for name in api.__all__ if f"`{name}`" not in api.__doc__]
    assert not missing
    assert len(api.__all__) == len(set(api.__all__))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_import_the_documented_api_alone(path):
    private = {module for module in imported_modules(path.read_text(encoding="utf-8")) if not is_public(module)}
    assert not private


def test_pages_import_the_documented_api_alone():
    private = {
        (page.name, module)
        for page in PAGES
        for block in python_blocks(page)
        for module in imported_modules(block)
        if not is_public(module)
    }
    assert not private


def test_pages_name_the_documented_api_alone():
    """Modules and names in running text, such as `fedblade.models.Backbone`, can be imported as they stand there."""
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`(fedblade\.[a-z_]+(?:\.\w+)*)[`(]", page.read_text(encoding="utf-8"))
        if not name.endswith((".toml", ".py", ".json"))
    }
    assert {(page, name) for page, name in named if not is_public(name) and name != "fedblade.plugins"} == set()


def test_private_modules_are_recognised():
    assert not is_public("fedblade.core.method")
    assert not is_public("fedblade.losses._proximal")
    assert is_public("fedblade.data.digits")
    assert imported_modules("from fedblade import losses\nimport numpy, fedblade.api") == {
        "fedblade.losses",
        "fedblade.api",
    }


def test_the_root_gives_every_documented_module_and_stays_light():
    code = "import fedblade, sys; assert 'torch' not in sys.modules; [getattr(fedblade, n) for n in fedblade.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_older_paths_keep_working():
    from fedblade.core.method import Method
    from fedblade.core.registry import methods

    assert api.Method is Method
    assert api.register_method.__self__ is methods
