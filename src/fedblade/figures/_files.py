"""Figures as files: the same runs give the same bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_file
from fedblade.figures._draw import need_matplotlib
from fedblade.figures._style import DPI, FORMATS, METADATA, ONE_COLUMN, RC, TWO_COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = {"1": {"1col": ONE_COLUMN}, "2": {"2col": TWO_COLUMNS}, "both": {"1col": ONE_COLUMN, "2col": TWO_COLUMNS}}
"""Widths in inches by the value of `--columns` and by the ending of the files' names."""


def check_formats(formats: Sequence[str]) -> None:
    """Refuse formats that no figure can be written in."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        given = f"'{unknown[0]}' is no format of figures" if unknown else "no format was given"
        raise Misconfigured(f"{given}. Choose from: {', '.join(FORMATS)}.")


def check_columns(columns: str) -> dict[str, float]:
    """The widths that `columns` stands for."""
    if columns not in WIDTHS:
        raise Misconfigured(f"'{columns}' is no width of figures. Choose from: {', '.join(WIDTHS)}.")
    return WIDTHS[columns]


def save(figure: "Figure", target: Path, kind: str) -> Path:
    """Write the figure in one format and return the file's path."""
    content = io.BytesIO()
    with need_matplotlib().rc_context(RC):
        figure.savefig(content, format=kind, dpi=DPI, metadata=METADATA[kind])
    return write_file(target, content.getvalue())
