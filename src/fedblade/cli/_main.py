"""Entry point: an error becomes one line and an exit status, and a signal leaves a run that can go on."""

import re
import sys
import traceback
from typing import Annotated, Any

import typer

from fedblade._version import __version__
from fedblade.cli import (
    _bench,
    _compare,
    _config,
    _data,
    _doctor,
    _export,
    _flower,
    _list,
    _partition,
    _predict,
    _report,
    _reproduce,
    _run,
    _show,
    _sweep,
    _watch,
)
from fedblade.cli._errors import only_prints, refuse_lost_output, worded
from fedblade.cli._examples import epilog
from fedblade.cli._stop import Stopped, stop_on_signals
from fedblade.core.errors import RunFailed
from fedblade.core.standard_streams import survive_lost_output

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
    only_prints(_config.config),
    only_prints(_list.list_),
    only_prints(_show.show),
    only_prints(_partition.partition),
    _data.data,
    _report.report,
    _watch.watch,
    _export.export,
    only_prints(_predict.predict),
    only_prints(_bench.bench),
    only_prints(_doctor.doctor),
):
    name = command.__name__.rstrip("_")
    app.command(name=name, epilog=epilog(name, command))(command)
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
    """Say if the output of a command that did its work is lost; its status says that the work is done."""
    try:
        refuse_lost_output()
    except RunFailed as error:
        if status == 0:
            print(f"watch out: {error} Only what the command printed is lost; its work is done.", file=sys.stderr)
    return status


def exit_status(arguments: list[str], *, debug: bool) -> int:
    """Run one command, and print one line if it fails; `debug` adds the traceback."""
    try:
        result: Any = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except Stopped as stopped:
        print(stopped.advice(arguments), file=sys.stderr)
        return 128 + stopped.number
    except Exception as error:
        return _print_error(*worded(error), debug=debug)


def _print_error(message: str, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    # Both click and typer add the same suggestion to a message.
    once = re.sub(r"( Did you mean [^?]*\?)\1+", r"\1", " ".join(message.split()))
    print(f"error: {once}", file=sys.stderr)
    return status
