"""`fedblade watch`: the state of runs while they go on, in the terminal or on a page."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from fedblade.cli._stop import Stopped


def watch(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run, or a folder that holds runs.")],
    web: Annotated[bool, typer.Option("--web", help="Serve the report on a page for this machine only.")] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, show_default=False, help="Port of the page; 8642 or the next free."
        ),
    ] = 0,
) -> None:
    """Show a running or finished run until it ends; Ctrl-C leaves, and the run goes on.

    Where the output is not a terminal, the state is printed once.

    The page of --web refreshes as rounds end and is served until Ctrl-C.

    Nothing is written to the folder.
    """
    from fedblade.core.errors import Misconfigured

    if port and not web:
        raise Misconfigured(f"--port {port} is the port of a page, and without --web there is no page. Add --web.")
    try:
        _serve(folder, port) if web else _show(folder)
    except Stopped as stopped:
        if stopped.number != signal.SIGINT:
            raise


def _show(folder: Path) -> None:
    from rich.console import Console

    from fedblade.watch import show

    show(folder, Console())


def _serve(folder: Path, port: int) -> None:
    from fedblade.watch import open_server

    with open_server(folder, port) as server:
        typer.echo(f"report of '{folder}', for this machine only, until Ctrl-C:\n{server.address}")
        server.serve_forever()
