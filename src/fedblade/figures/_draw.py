"""Panels as matplotlib figures, without pyplot and its global state, and figures as files.

matplotlib is imported when a figure is made. The same runs give the same bytes.
"""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedblade.charts import LinePanel, MatrixPanel, Panel
from fedblade.charts.palette import NEGATIVE, POSITIVE
from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.core.files import write_file
from fedblade.figures._lines import draw_lines
from fedblade.figures._style import DPI, FORMATS, LETTERS_PER_INCH, METADATA, ONE_COLUMN, RC, STEPS, WIDTHS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_SHARE_OF_HEIGHT = 0.8
"""The share of a panel's height that upright text may take."""


def need_matplotlib() -> Any:
    """The package, or an error that says how to install it."""
    return need("matplotlib", "figures", "matplotlib", "drawing figures for papers")


def draw(panels: Sequence[Panel], width: float, make_figure: "Callable[[float], Figure] | None" = None) -> "Figure":
    """A figure of the panels in rows, `width` inches wide. `make_figure` makes an empty one of a width."""
    with need_matplotlib().rc_context(RC):
        columns = _columns(panels, width)
        rows = math.ceil(len(panels) / columns)
        figure = (make_figure or _figure_for_a_file)(width)
        axes = _axes(figure, len(panels), columns)
        extra, height = 0.0, _panel_height(panels, width / columns)
        if isinstance(panels[0], LinePanel):
            extra = draw_lines(
                figure, axes, [panel for panel in panels if isinstance(panel, LinePanel)], width / columns
            )
        else:
            _draw_matrices(figure, axes, [panel for panel in panels if isinstance(panel, MatrixPanel)], rows * height)
        _label(axes, panels, columns, (width / columns, height))
        figure.set_size_inches(width, round(rows * height + extra, 2))
        # The layout is computed once, with the fonts of this package, and is the same in every format.
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    return figure


def _axes(figure: "Figure", count: int, columns: int) -> list["Axes"]:
    """The axes in rows; those of the last row share its whole width, so that no place stays empty."""
    last = count % columns or columns
    parts = math.lcm(columns, last)
    grid = figure.add_gridspec(math.ceil(count / columns), parts)
    axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        span = parts // (columns if index < count - last else last)
        axes.append(figure.add_subplot(grid[row, column * span : (column + 1) * span]))
    return axes


def _figure_for_a_file(width: float) -> "Figure":
    """An empty figure that no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.0), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _columns(panels: Sequence[Panel], width: float) -> int:
    """Panels per row; panels of one setting stay together where they fit."""
    most = 2 if width <= ONE_COLUMN else 4
    kinds = len({panel.y.label for panel in panels})
    if 1 < kinds <= most and len(panels) > most:
        return kinds * (most // kinds)
    return math.ceil(len(panels) / math.ceil(len(panels) / most))


def _panel_height(panels: Sequence[Panel], width: float) -> float:
    if isinstance(panels[0], MatrixPanel):
        return max(1.4, min(2.2, 0.75 * width)) if panels[0].kind == "labels" else 0.95 * width
    return max(1.45, min(2.4, 0.68 * width))


def _draw_matrices(figure: "Figure", axes: Sequence["Axes"], panels: Sequence[MatrixPanel], height: float) -> None:
    """Draw every panel with one scale of shades; cosines go from orange over white to blue, as on the page."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    labels = panels[0].kind == "labels"
    signed = LinearSegmentedColormap.from_list("cosines", (NEGATIVE, "#ffffff", POSITIVE))
    colours = signed if panels[0].kind == "cosines" else "Blues"
    norm = _shades(panels)
    used = list(axes[: len(panels)])
    for ax, panel in zip(used, panels, strict=True):
        values = [[math.nan if value is None else value for value in row] for row in panel.values]
        image = ax.imshow(
            values, norm=norm, cmap=colours, interpolation="nearest", aspect="auto" if labels else "equal"
        )
        ax.grid(False)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
    shade = textwrap.fill(panels[0].shade.label, int(height * LETTERS_PER_INCH * _SHARE_OF_HEIGHT))
    figure.colorbar(image, ax=used, label=shade, fraction=0.05, pad=0.02)


def _shades(panels: Sequence[MatrixPanel]) -> "Normalize":
    """Which numbers the ends of the colours stand for; the square root keeps small counts visible."""
    from matplotlib.colors import Normalize, PowerNorm

    if panels[0].kind != "labels":
        return Normalize(-1.0, 1.0) if panels[0].kind == "cosines" else Normalize(0.0, 100.0)
    most = max((value or 0.0 for panel in panels for row in panel.values for value in row), default=1.0)
    return PowerNorm(0.5, vmin=0.0, vmax=most or 1.0)


def _label(axes: Sequence["Axes"], panels: Sequence[Panel], columns: int, size: tuple[float, float]) -> None:
    """Titles, and axis labels where the panel to the left or below has another label."""
    across, up = (
        int(inches * LETTERS_PER_INCH * share) for inches, share in zip(size, (0.85, _SHARE_OF_HEIGHT), strict=True)
    )
    repeated = len({panel.title for panel in panels}) < len(panels)
    # Below them are panels of the same width; the last row may have fewer and wider ones.
    aligned = len(panels) if len(panels) % columns == 0 else columns * (len(panels) // columns)
    for index, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
        if panel.title and not (repeated and index and index % columns and panels[index - 1].title == panel.title):
            # No break between a sign and its value.
            ax.set_title(textwrap.fill(panel.title.replace(" = ", "\u00a0=\u00a0"), across))
        below = panels[index + columns] if index + columns < aligned else None
        if below is None or below.x.label != panel.x.label:
            ax.set_xlabel(textwrap.fill(panel.x.label, across))
        left = panels[index - 1] if index % columns else None
        if left is None or left.y.label != panel.y.label:
            ax.set_ylabel(textwrap.fill(panel.y.label, up))
        if left is not None and panel.shared and panel.shared == left.shared:
            ax.tick_params(labelleft=False)


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
