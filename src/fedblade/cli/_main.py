"""Entry point: an error becomes one line and an exit status, and a signal leaves a run that can go on."""

import re
import sys
import traceback
from typing import Annotated, Any

import click
import typer

from fedblade._version import __version__
from fedblade.cli import (
    _bench,
    _compare,
    _data,
    _doctor,
    _flower,
    _list,
    _partition,
    _report,
    _reproduce,
    _run,
    _show,
    _sweep,
    _watch,
)
from fedblade.cli._stop import Stopped, stop_on_signals
from fedblade.core.errors import FedbladeError
from fedblade.core.standard_streams import lost_output, survive_lost_output

app = typer.Typer(
    name="fedblade",
    help="Federated learning when clients see different labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    _run.run,
    _compare.compare,
    _sweep.sweep,
    _reproduce.reproduce,
    printing(_list.list_),
    printing(_show.show),
    printing(_partition.partition),
    _data.data,
    _report.report,
    _watch.watch,
    printing(_bench.bench),
    printing(_doctor.doctor),
):
    app.command(name=command.__name__.rstrip("_"))(command)
app.add_typer(_flower.flower)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,  # noqa: ARG001
) -> None:
    """Federated learning when clients see different labels."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 the run failed, 2 a mistake of the user, 128+n a signal."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    survive_lost_output()
    stop_on_signals()
    sys.exit(_say_what_was_lost(exit_status(arguments, debug=debug)))


def _say_what_was_lost(status: int) -> int:
    """Say that the output of a command that ended well is lost, unless its reader went away on purpose."""
    lost = lost_output()
    if status == 0 and lost is not None and not isinstance(lost, BrokenPipeError):
        print(f"watch out: what the command printed is lost ({lost.strerror}); its work is done", file=sys.stderr)
    return status


def exit_status(arguments: list[str], *, debug: bool) -> int:
    """Run one command, and print one line if it fails; `debug` adds the traceback."""
    try:
        result: Any = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except Stopped as stopped:
        print(stopped.advice(arguments), file=sys.stderr)
        return 128 + stopped.number
    except click.ClickException as error:
        used = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "fedblade"
        return _print_error(f"{error.format_message()} Try '{used} --help'.", error.exit_code, debug=debug)
    except FedbladeError as error:
        return _print_error(str(error), error.exit_status, debug=debug)
    except UnicodeError as error:
        return _print_error(f"text that is not UTF-8: {error}. Store the file as UTF-8.", 2, debug=debug)
    except OSError as error:
        where = "" if error.filename is None else f"'{error.filename}': "
        return _print_error(f"{where}{error.strerror or error}. {remedy(error)}.", 1, debug=debug)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error}. This is a bug; --debug shows where."
        return _print_error(message, 1, debug=debug)


def _print_error(message: str, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    # Both click and typer add the same suggestion to a message.
    once = re.sub(r"( Did you mean [^?]*\?)\1+", r"\1", " ".join(message.split()))
    print(f"error: {once}", file=sys.stderr)
    return status
