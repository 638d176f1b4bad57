"""`fedblade report`: an HTML page, figures and tables from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from fedblade.cli import _options as opt


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Runs, or folders that hold runs.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File of the page; report.html in the first folder if left out."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write figures and tables for a paper.")
    ] = None,
    formats: Annotated[
        str, typer.Option("--formats", metavar="svg,pdf,png", help="Formats of figures.")
    ] = "svg,pdf,png",
    columns: Annotated[str, typer.Option("--columns", metavar="1|2|both", help="Widths of figures.")] = "both",
    paper: Annotated[
        str | None, typer.Option("--paper", metavar="ID", help="Draw a figure of a paper instead, such as fd-f4.")
    ] = None,
    threshold: opt.Threshold = None,
) -> None:
    """Write a report that opens offline in a browser. The last line printed is its path."""
    from fedblade.core.errors import Misconfigured
    from fedblade.figures import write_figures, write_tables
    from fedblade.report import build_report

    if paper is not None and figures is None:
        raise Misconfigured(f"--paper {paper} draws a figure and needs a folder for it. Add --figures DIR.")
    opt.warn_of_unreadable(folders)
    written = []
    if figures is not None:
        kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
        written += write_figures(folders, figures, formats=kinds, columns=columns, paper=paper)
        written += write_tables(folders, figures, threshold=threshold)
    path = build_report(folders, out or folders[0] / "report.html", threshold=threshold)
    for file in written:
        typer.echo(str(file))
    typer.echo(str(path))
