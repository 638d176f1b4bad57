"""Sizes that keep the code readable: modules, functions and parameter lists."""

import ast
from pathlib import Path

import fedblade

ROOT = Path(fedblade.__file__).parent
LONGEST_MODULE, LONGEST_FUNCTION, MOST_PARAMETERS = 250, 40, 7
EXCEPTED_FILES = ("_kernels.py",)
"""Kernels are compiled as one function, and their parameters are addresses and strides."""
EXCEPTED_FOLDERS = ("cli", "methods")
"""A command's parameters are its options, a method's are its knobs."""
EXCEPTED_FUNCTIONS = {"forward", "backward", "_backward", "feature_alignment", "run", "compare", "sweep"}
"""Autograd functions take the tensors and settings of an operation one by one, a published loss takes its formula's,
and the parameters of what a script calls are its options, like those of a command."""


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


def num_parameters(function: ast.FunctionDef) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return len(names) + len(function.args.kwonlyargs) - (names[:1] in (["self"], ["cls"]))


def test_modules_are_short():
    sizes = {path: len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {str(path): size for path, size in sizes.items() if size > LONGEST_MODULE} == {}


def test_functions_are_short():
    long = [
        f"{path.relative_to(ROOT)}: {each.name} has {each.end_lineno - each.lineno + 1} lines"
        for path in ROOT.rglob("*.py")
        if not path.name.endswith(EXCEPTED_FILES)
        for each in functions(path)
        if each.end_lineno - each.lineno + 1
        > LONGEST_FUNCTION + num_parameters(each) * (path.parent.name in EXCEPTED_FOLDERS)
    ]
    assert long == []


def test_functions_have_few_parameters():
    many = [
        f"{path.relative_to(ROOT)}: {each.name} has {num_parameters(each)}"
        for path in ROOT.rglob("*.py")
        if not path.name.endswith(EXCEPTED_FILES) and path.parent.name not in EXCEPTED_FOLDERS
        for each in functions(path)
        if num_parameters(each) > MOST_PARAMETERS and each.name not in EXCEPTED_FUNCTIONS
    ]
    assert many == []
