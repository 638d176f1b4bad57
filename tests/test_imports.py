"""Imports go downwards: core knows nobody, methods know no engine, and the light packages stay light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import fedblade

ROOT = Path(fedblade.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "protocols": set(),
    "hardness": {"core"},
    "heads": {"core"},
    "losses": {"core", "heads"},
    "payloads": {"core"},
    "server": {"core", "heads"},
    "personal": {"core"},
    "regularisers": {"core", "losses", "personal"},
    "methods": {"core", "heads", "losses", "server", "payloads", "personal", "regularisers"},
    "partitions": {"core", "hardness"},
    "participations": {"core"},
    "data": {"core"},
    "models": {"core"},
    "diagnostics": {"core", "heads"},
    "engines": {"core"},
    "trackers": {"core"},
    "config": {"core", "methods"},
    "presets": {"core", "config"},
    "results": {"core", "hardness", "protocols", "presets"},
    "exports": {"core", "config", "results"},
    "runs": {
        "core", "protocols", "methods", "partitions", "participations", "data", "models", "diagnostics", "engines",
        "trackers", "config", "presets", "results", "display", "exports",
    },
    "studies": {
        "core", "protocols", "methods", "partitions", "data", "models", "engines", "config", "presets", "results",
        "display", "runs",
    },
    "cards": {"core", "methods", "data", "config", "presets", "results", "runs"},
    "charts": {"core", "protocols", "hardness", "results"},
    "report": {"core", "charts", "results"},
    "figures": {"core", "charts", "results", "config", "presets"},
    "display": {"core", "results", "report", "figures"},
    "watch": {"core", "charts", "protocols", "report", "results"},
    "flower": {"core", "data", "engines", "partitions", "config", "presets", "results", "runs"},
    "api": {
        "core", "data", "diagnostics", "heads", "losses", "methods", "models", "participations", "partitions",
        "payloads", "server",
    },
    "cli": {
        "core", "data", "partitions", "config", "presets", "results", "runs", "studies", "cards", "report", "figures",
        "watch", "flower", "exports",
    },
}  # fmt: skip
THIRD_PARTY_OF_CORE = {"torch", "numpy", "safetensors"}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "fedblade" else {node.module}
            )
    return found


def package_files() -> list[tuple[str, Path]]:
    files = [(path.relative_to(ROOT).parts[0].removesuffix(".py"), path) for path in ROOT.rglob("*.py")]
    return [(package, path) for package, path in files if package not in {"__init__", "__main__", "_version"}]


def test_every_package_has_a_rule():
    assert {package for package, _ in package_files()} == set(ALLOWED)


def test_imports_go_downwards():
    wrong = []
    for package, path in package_files():
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] != "fedblade" or len(parts) == 1 or parts[1] in {package, "_version"}:
                continue
            if parts[1] not in ALLOWED[package]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def names_imported(path: Path) -> set[str]:
    """Every dotted name that a file imports from fedblade, down to the function or class."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "fedblade" and name != "fedblade.__version__"}


def door_of(name: str) -> str | None:
    """The package that a private name belongs to, None for a public name: `fedblade.runs._setup.prepare` → `runs`."""
    parts = name.split(".")[1:]
    private = next((place for place, part in enumerate(parts) if part.startswith("_")), None)
    return None if private is None or parts[0] == "_version" else ".".join(parts[:private])


def test_underscores_bind():
    """A private module is imported by modules of its own package alone; a subpackage belongs to its package."""
    wrong = []
    for package, path in package_files():
        for name in names_imported(path):
            door = door_of(name)
            if door is not None and door.split(".")[0] != package:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_resource_files_belong_to_one_package():
    """`files(...)` and `PackageLoader(...)` name the package that the module itself is in."""
    wrong = []
    for package, path in package_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"files", "PackageLoader"}:
                owner = ast.unparse(node.args[0]) if node.args else ""
                if owner not in {f"'fedblade.{package}'", "__package__"}:
                    wrong.append(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    assert not wrong


def test_private_names_are_not_reached_in_other_ways():
    """No relative import, and no `module._name` of a module that was imported from another package."""
    wrong = []
    for package, path in package_files():
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        wrong += [f"{path.relative_to(ROOT)}: relative import" for node in imports if node.level]
        foreign = {
            alias.asname or alias.name
            for node in imports
            if (node.module or "").startswith("fedblade") and (node.module or "").split(".")[1:2] != [package]
            for alias in node.names
        }
        wrong += [
            f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in foreign
            if node.attr.startswith("_") and not node.attr.startswith("__")
        ]
    assert not wrong


def test_every_package_says_what_it_is_for():
    assert all(ast.get_docstring(ast.parse(path.read_text())) for path in ROOT.rglob("__init__.py"))


def test_the_core_needs_little():
    for package, path in package_files():
        if package == "core":
            outside = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names - {"fedblade"}
            assert outside <= THIRD_PARTY_OF_CORE, path


def test_flower_stays_where_it_is_used():
    outside = [path for package, path in package_files() if package != "flower"]
    wrong = [path for path in outside if any(name.split(".")[0] == "flwr" for name in imports_of(path))]
    assert not wrong
    inside = [path for package, path in package_files() if package == "flower"]
    assert any(any(name.split(".")[0] == "flwr" for name in imports_of(path)) for path in inside)


def test_flower_is_loaded_by_its_apps_alone():
    """What starts a deployment, and a node's own work, need no package of Flower's in their process."""
    for module in (
        "fedblade",
        "fedblade.cli",
        "fedblade.runs",
        "fedblade.engines.deployed",
        "fedblade.flower._node",
        "fedblade.flower._server",
    ):
        code = f"import sys, {module}; sys.exit('flwr' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, module


def test_light_imports_do_not_load_torch():
    for module in (
        "fedblade",
        "fedblade.charts",
        "fedblade.report",
        "fedblade.watch",
        "fedblade.figures",
        "fedblade.cli",
        "fedblade.flower.federation_status",
        "fedblade.flower.local_federation",
        "fedblade.protocols",
        "fedblade.hardness",
    ):
        code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, module


def test_optional_packages_are_imported_late():
    code = (
        "import sys\n"
        "for name in ('sklearn', 'onnx', 'onnxscript', 'flwr', 'torchvision', 'matplotlib', 'pyarrow'):\n"
        "    sys.modules[name] = None\n"
        "import fedblade, fedblade.runs, fedblade.cli\n"
        "from fedblade.core import registry\n"
        "for kind in ('methods', 'losses', 'heads', 'models', 'datasets', 'partitions', 'metrics', 'engines'):\n"
        "    assert getattr(registry, kind).names(), kind\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_picture_of_the_packages_agrees_with_the_table():
    """CONTRIBUTING.md draws every package once, above all packages that it may import."""
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = text.partition("```\ncli ")[2].partition("```")[0]
    lines = [re.split(r"\s{2,}", line)[0].split(" · ") for line in f"cli {picture}".splitlines()]
    height = {package: -number for number, line in enumerate(lines) for package in line}
    assert sum(map(len, lines)) == len(height)
    assert height.keys() == ALLOWED.keys()
    wrong = {(upper, lower) for upper in ALLOWED for lower in ALLOWED[upper] if height[lower] >= height[upper]}
    assert not wrong
