"""Figures and tables for papers, from run folders: PDF, SVG and PNG for one and two columns, Markdown, CSV and LaTeX.

The package reads only what runs wrote to disk. Figures need matplotlib (`pip install 'fedblade[figures]'`), which is
imported when the first figure is drawn; tables need no matplotlib. Of the figures of the five papers, the t-SNE map of
`fe-f1` is left out: it needs every client's head, which runs do not store.
"""

from collections.abc import Sequence
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_file
from fedblade.figures._cells import choose_cells
from fedblade.figures._draw import check_columns, check_formats, draw, need_matplotlib, save
from fedblade.figures._panels import build_panels
from fedblade.figures._plot import plot_groups
from fedblade.figures._specs import general_figures, paper_figure, paper_ids
from fedblade.figures._style import FORMATS
from fedblade.results import comma_separated, comparison_rows, group_runs, latex, markdown, read_runs

__all__ = ["FORMATS", "paper_ids", "plot_groups", "write_figures", "write_tables"]


def write_figures(
    paths: Sequence[Path],
    folder: Path,
    *,
    formats: Sequence[str] = FORMATS,
    columns: str = "both",
    paper: str | None = None,
) -> list[Path]:
    """Write the figures that the runs at or below `paths` have numbers for into `folder` and return the files' paths.

    `columns` is `1` (3.3 inches), `2` (6.9 inches) or `both`. `paper` is the id of a figure of one of the papers, such
    as `fd-f4`: then only that one is drawn, from the runs of its preset if any of them are among the runs and from all
    runs otherwise, and numbers that no run has are an error that names the metric to add.
    """
    check_formats(formats)
    widths = check_columns(columns)
    parts = [] if paper is None else paper_figure(paper)
    need_matplotlib()
    all_groups = group_runs(read_runs(paths))
    groups = all_groups if paper is None else choose_cells(paper, all_groups)
    parts = parts or general_figures(groups)
    drawn = {part.name: build_panels(part, groups, strict=paper is not None, among=all_groups) for part in parts}
    if not any(drawn.values()):
        raise Misconfigured("the runs hold nothing to draw; expected at least one evaluated round. Run them first.")
    return [
        save(figure, Path(folder) / f"{name}-{ending}.{kind}", kind)
        for name, panels in drawn.items()
        if panels
        for ending, width in widths.items()
        for figure in [draw(panels, width)]
        for kind in formats
    ]


def write_tables(paths: Sequence[Path], folder: Path, *, threshold: float | None = None) -> list[Path]:
    """Write the comparison of the runs as `results.md`, `results.csv` and `results.tex` and return the files' paths.

    `threshold` is the accuracy in percent for "rounds to"; by default it is chosen as the report chooses it.
    """
    rows = comparison_rows(paths, threshold)
    made = {"md": markdown(rows), "csv": comma_separated(rows), "tex": latex(rows)}
    return [write_file(Path(folder) / f"results.{kind}", content) for kind, content in made.items()]
