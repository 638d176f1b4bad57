"""Sizes, fonts, dashes and markers of figures, and metadata that does not depend on the day."""

from typing import Any

from fedblade.charts.palette import GRID

ONE_COLUMN, TWO_COLUMNS = 3.3, 6.9
"""Widths in inches."""
WIDTHS = {"1": {"1col": ONE_COLUMN}, "2": {"2col": TWO_COLUMNS}, "both": {"1col": ONE_COLUMN, "2col": TWO_COLUMNS}}
"""Widths in inches by the value of `--columns` and by the ending of the files' names."""
DPI = 300
LETTERS_PER_INCH = 15
"""Roughly, of the text below."""
STEPS = (1, 2, 2.5, 5, 10)
"""Multiples that ticks may stand at."""
FORMATS = ("svg", "pdf", "png")

# Dashes and markers tell lines apart in grey print. The numbers of colours, dashes and markers have no common divisor,
# so that a combination returns only after many lines.
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")

RC: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.25,
    "legend.borderpad": 0.1,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedblade",
}
"""Settings of matplotlib while a figure is made; text stays text in PDF and SVG."""

METADATA: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
"""What is left out of the files, so that the same runs give the same bytes."""
