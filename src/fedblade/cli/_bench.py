"""`fedblade bench`: speed and memory as ratios in one run, next to their goals."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

_RUNNER = "benchmarks/runner.py"


def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Benchmark to run; all that can run here if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    repeat: Annotated[
        int | None, typer.Option("--repeat", min=1, metavar="N", help="Repetitions of each side.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Where to measure: auto, cpu or cuda.")] = "auto",
) -> None:
    """Measure speed and memory against the goals; what cannot run here is listed with the reason.

    The benchmarks are in the folder `benchmarks` of the repository and not in the installed package.
    """
    checkout = str(_find_checkout())
    if checkout not in sys.path:
        sys.path.insert(0, checkout)
    runner = importlib.import_module("benchmarks.runner")
    style = "json" if as_json else "markdown" if as_markdown else "text"
    typer.echo(runner.run_as_text(name, repeat=repeat, device=device, style=style, on_start=_announce))


def _find_checkout() -> Path:
    """The root of the repository: around the code that is running, or else the current folder."""
    from fedblade.core.errors import Misconfigured

    for folder in (*Path(__file__).parents, Path.cwd()):
        if (folder / _RUNNER).is_file() and (folder / "src" / "fedblade").is_dir():
            return folder
    raise Misconfigured(
        f"the benchmarks are not part of the installed package, and '{Path.cwd()}' has no {_RUNNER}. "
        "Clone the repository of fedblade and run `fedblade bench` from its root."
    )


def _announce(line: str) -> None:
    """Tell a person at a terminal what is measured now."""
    if sys.stderr.isatty():
        typer.echo(line, err=True)
