"""Every command with its arguments and options, as typer knows them."""

import inspect
import re
from collections.abc import Iterator

import click

_INTRODUCTION = """\
# Commands

Made from the program itself; `fedblade COMMAND --help` prints the same. [How to use the command line
](how-to-commands.md) shows the commands at work.

A command ends with status 0, with 1 if a run failed, and with 2 if something in the input has to be changed; then one
line says what was given, what was expected and what to do. `fedblade --debug COMMAND …` shows the traceback as well.
"""


def command_page() -> str:
    """The page of all commands."""
    return "\n\n".join(
        (_INTRODUCTION, *(_section(name, command) for name, command in _walk("fedblade", root_command())))
    )


def root_command() -> click.Command:
    """The command `fedblade` with all commands below it."""
    import typer.main

    from fedblade.cli._main import app

    return typer.main.get_command(app)


def all_commands() -> list[str]:
    """The full name of every command."""
    return [name for name, _ in _walk("fedblade", root_command())]


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for key, inner in command.commands.items():
        yield from _walk(f"{name} {key}", inner)


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    rows = [row for parameter in command.get_params(context) if (row := _row(parameter, context)) is not None]
    table = ("| argument or option | meaning |\n| --- | --- |\n" + "\n".join(rows)) if rows else ""
    text = inspect.cleandoc(command.help or "")
    return "\n\n".join(part for part in (f"## {name}", f"```text\n{usage}\n```", text, table) if part)


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    """A line of the table; typer writes defaults into the help, so the words come from there."""
    if isinstance(parameter, click.Option):
        record = parameter.get_help_record(context)
        if record is None or parameter.name == "help":
            return None
        name, words = record
    else:
        name, words = parameter.make_metavar(context), getattr(parameter, "help", None) or ""
    return f"| `{_cell(name)}` | {_cell(words)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
