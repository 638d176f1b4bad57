"""The README's commands name settings and methods that exist."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from fedblade.experiment import load_config
from fedblade.experiment._compare import plan_comparison
from fedblade.experiment._overrides import parse_assignment

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """Arguments of every `fedblade NAME …` line of the README, comments and placeholders left out."""
    lines = [line.partition("#")[0].removeprefix(".venv/bin/").strip() for line in README.splitlines()]
    return [shlex.split(line)[2:] for line in lines if line.startswith(f"fedblade {name} ") and "…" not in line]


def values(arguments: list[str], option: str) -> list[str]:
    return [after for before, after in pairwise(arguments) if before == option]


def settings(arguments: list[str]) -> dict[str, object]:
    return dict(parse_assignment(text) for text in values(arguments, "--set"))


@pytest.mark.parametrize("arguments", commands("compare"), ids=" ".join)
def test_every_comparison_can_be_planned(arguments, tmp_path):
    methods = values(arguments, "--methods")[0].split(",")
    assert plan_comparison(None, settings(arguments), methods, [1], tmp_path)


@pytest.mark.parametrize("arguments", [*commands("run"), *commands("partition")], ids=" ".join)
def test_every_setting_exists(arguments):
    load_config(None, settings(arguments))


def test_the_readme_has_such_commands():
    assert len(commands("compare")) == 2
    assert commands("run")
