"""Reports from run folders: a self-contained HTML page, and label maps as SVG.

A report reads only what a run wrote to disk. So it works on finished, running and broken runs alike and needs neither
the model nor the data.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_file
from fedblade.report._blocks import WIDE
from fedblade.report._labelmap import draw_label_map
from fedblade.report._notebook import notebook_html
from fedblade.report._page import page
from fedblade.results import RunRecord, check_counts, check_threshold, compare, group_runs, read_runs, suggest_threshold

__all__ = ["build_report", "label_map_svg", "notebook_html", "write_report"]


def build_report(
    paths: Sequence[Path], out: Path, *, title: str | None = None, note: str = "", threshold: float | None = None
) -> Path:
    """Write the HTML report of all runs at or below `paths` to the file `out` and return its path.

    `note` stands above the results. `threshold` is the accuracy in percent for "rounds to"; by default the largest
    multiple of 5 that at least half of the runs reach.
    """
    return write_report(read_runs(paths), out, title=title, note=note, threshold=threshold)


def write_report(
    runs: Sequence[RunRecord], out: Path, *, title: str | None = None, note: str = "", threshold: float | None = None
) -> Path:
    """Write the HTML report of these runs, which need no folder; see `build_report`."""
    target = Path(out)
    if target.is_dir():
        raise Misconfigured(
            f"'{target}' is a folder; expected a file to write. Name one, e.g. '{target / 'report.html'}'."
        )
    groups = group_runs(runs)
    level = suggest_threshold(groups) if threshold is None else check_threshold(threshold)
    return write_file(target, page(groups, compare(groups, level), title, note))


def label_map_svg(
    counts: Any,
    *,
    class_names: Sequence[str] | None = None,
    client_names: Sequence[str] | None = None,
    title: str | None = None,
) -> str:
    """A label map of `counts [clients][classes]` (nested sequences or an array) as the content of an SVG file."""
    table = check_counts(counts, "the label map's table")
    if class_names is not None and len(class_names) != len(table[0]):
        raise Misconfigured(
            f"{len(class_names)} class names were given for {len(table[0])} classes. Give one name per class."
        )
    return draw_label_map(
        table, WIDE, name="label-map", class_names=class_names, client_names=client_names, title=title, alone=True
    )
