"""Help and version: complete, and without waiting for torch."""

import re

import pytest

import fedblade

COMMANDS = ("run", "compare", "list", "show", "partition", "report", "watch", "export", "predict", "bench", "doctor")
HEAVY = {"torch", "numpy", "sklearn", "pydantic"}


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["compare", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(fresh_cli, argv):
    answer = fresh_cli(*argv, options=("-X", "importtime"))
    imported = {line.rsplit("|", 1)[-1].strip() for line in answer.err.splitlines() if "|" in line}
    assert answer.status == 0
    assert "fedblade.cli" in imported
    assert not imported & HEAVY


def test_help_names_every_command(fresh_cli):
    text = fresh_cli("--help").done().out
    for command in COMMANDS:
        assert re.search(rf"^[\s│]+{command}\s", text, re.MULTILINE), command


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", ["--set", "--out", "--resume", "--engine", "--device", "--seed", "--quiet", "--profile"]),
        ("compare", ["--methods", "--seeds", "--set", "--out", "--engine", "--device", "--seed", "--quiet"]),
        *((command, ["--jobs", "--devices"]) for command in ("compare", "sweep", "reproduce")),
        ("list", ["--json"]),
        ("partition", ["--plot", "--save", "--compare", "--set", "--where"]),
        ("report", ["--out", "--figures", "--formats", "--columns", "--paper"]),
        ("watch", ["--web", "--port"]),
        ("export", ["--format", "--out", "Examples:"]),
        ("predict", ["--json", "Examples:"]),
    ],
)
def test_help_of_a_command_names_the_options_of_the_contract(cli, command, options):
    text = cli(command, "--help").done().out
    assert [option for option in options if f"{option} " not in text and f"{option}\n" not in text] == []


@pytest.mark.parametrize("argv", [["--version"], ["--version", "--debug"]])
def test_version(cli, argv):
    assert cli(*argv).done().out == f"{fedblade.__version__}\n"


def test_no_command_shows_the_help(cli):
    answer = cli()
    assert "Usage" in answer.out + answer.err
    assert "compare" in answer.out + answer.err
    assert "Traceback" not in answer.err


def test_help_shows_no_escapes(cli):
    for command in COMMANDS:
        assert "\\" not in cli(command, "--help").done().out, command


@pytest.mark.parametrize("command", [*COMMANDS, "sweep", "reproduce", "config", "data"])
def test_help_has_an_example_and_explains_arguments(cli, command):
    text = cli(command, "--help").done().out
    assert f"fedblade {command}" in text.partition("Examples:")[2]
    if command == "list":
        assert "What to list" in text
