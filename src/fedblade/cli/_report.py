"""`fedblade report`: an HTML page from run folders."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Runs, or folders that hold runs.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page; report.html in the first folder.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write each figure as SVG.")
    ] = None,
    threshold: Annotated[float | None, typer.Option("--threshold", help="Accuracy in percent for `rounds to`.")] = None,
) -> None:
    """Write a report that opens offline in a browser; the last line printed is its path."""
    from fedblade.report import build_report, write_figures

    path = build_report(folders, out or folders[0] / "report.html", threshold=threshold)
    if figures is not None:
        for figure in write_figures(folders, figures):
            typer.echo(str(figure))
    typer.echo(str(path))
