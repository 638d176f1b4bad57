"""Entry point: errors become one line and an exit status, interruptions leave a resumable run."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Annotated, Any

import click
import typer

from fedblade._version import __version__
from fedblade.cli import _compare, _doctor, _list, _partition, _report, _run, _show
from fedblade.core.errors import FedbladeError

app = typer.Typer(
    name="fedblade",
    help="Federated learning when clients see different labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    _run.run,
    _compare.compare,
    _list.list_,
    _show.show,
    _partition.partition,
    _report.report,
    _doctor.doctor,
):
    app.command(name=command.__name__.rstrip("_"))(command)


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; handled like Ctrl-C, with the exit status of its own signal."""


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
    """Run the command line and leave with a status: 0 done, 1 failed, 2 a mistake of the user's, 128+n a signal."""
    arguments = [each for each in sys.argv[1:] if each != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    with _sigterm_as_interrupt():
        status = _status(arguments, debug)
    sys.exit(status)


def _status(arguments: list[str], debug: bool) -> int:
    try:
        result: Any = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
        print("stopped; a run with a folder goes on with: fedblade run --resume --out FOLDER", file=sys.stderr)
        return 128 + (signal.SIGTERM if terminated else signal.SIGINT)
    except FedbladeError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except Exception as error:
        if debug:
            raise
        print(
            f"error: unexpected {type(error).__name__}: {error}. This is a bug; --debug shows where.", file=sys.stderr
        )
        return 1


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
