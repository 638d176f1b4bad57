"""`fedblade bench`: the benchmarks, each as a ratio in one run, with its goal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedblade.bench._base import Benchmark


def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Benchmark to run; all that can run here if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    repeat: Annotated[
        int | None, typer.Option("--repeat", min=1, metavar="N", help="Repetitions of each side.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda: where to measure.")] = "auto",
) -> None:
    """Measure speed and memory against the goals; what cannot run here is listed with the reason."""
    from fedblade.bench import _render
    from fedblade.bench._base import Options, check_device
    from fedblade.bench._registry import chosen, run

    check_device(device)
    wanted = chosen(name)
    rows = run(wanted, Options(repeat, device), _say)
    found = _render.tables(rows)
    show = _render.as_json if as_json else _render.as_markdown if as_markdown else _render.as_text
    typer.echo(show(found))


def _say(each: "Benchmark") -> None:
    """Tell who is waiting what is measured now."""
    if sys.stderr.isatty():
        typer.echo(f"{each.name}: {each.summary} …", err=True)
