"""A number of runs over rounds, drawn with pyplot, so that a notebook or a window shows it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedblade.core.errors import Misconfigured, nearest
from fedblade.figures._draw import draw, need_matplotlib
from fedblade.figures._panels import build_panels
from fedblade.figures._specs import Part, number_spec
from fedblade.results import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 5.0
"""Inches."""


def plot_groups(groups: Sequence[Group], number: str = "test_accuracy") -> "Axes":
    """Draw a number of the history over rounds, one line for each group, and return the axes.

    Lines are means over seeds, and bands reach from the lowest to the highest seed.
    """
    need_matplotlib()
    panels = build_panels(Part("plot", "rounds", ((number_spec(number),),)), groups, strict=False)
    if not panels:
        names = {name for group in groups for run in group.counted for round_ in run.history for name in round_.numbers}
        raise Misconfigured(f"no run has the number '{number}'.{nearest(number, names, ('test_accuracy',))}")
    return draw(panels, _WIDTH, _shown_figure).axes[0]


def _shown_figure(width: float) -> "Figure":
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, 1.0), layout="constrained")
