"""The figures of a report: what each shows, and how a newcomer reads it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.report._lines import LineChart
from fedblade.results import Group, Round, drawn_sentence

WIDE, NARROW = 940.0, 352.0
SMALL = (380.0, 236.0)


@dataclass(frozen=True)
class Figure:
    """A picture that can be drawn at any width.

    `reading` tells a newcomer how to read it, `seen` what the numbers show here, `data` is for the page's script. A
    picture with an `owner` shows that one group.
    """

    name: str
    title: str
    reading: str
    draw: Callable[[float, str], str]
    seen: str = ""
    data: Mapping[str, Any] | None = None
    owner: int | None = None


def accuracy_figure(groups: Sequence[Group]) -> Figure | None:
    """Test accuracy over rounds, or None when nothing was evaluated."""
    reading = (
        "The share of test samples the model answers rightly. Higher is better, and rising earlier means fewer rounds "
        "of communication."
    )
    return _course(groups, "accuracy", lambda r: r.accuracy, ", %", reading, tall=400, bounds=(0.0, 100.0))


def loss_figure(groups: Sequence[Group]) -> Figure | None:
    """Test loss over rounds, or None when nothing was evaluated."""
    reading = (
        "The cross-entropy of the model's answers on the test samples. Lower is better. Loss that rises while accuracy "
        "stands still means wrong answers are given with more confidence; methods that train with different losses "
        "are best compared by accuracy."
    )
    return _course(groups, "loss", lambda r: r.loss, "", reading, tall=300)


def line_figure(
    name: str, chart: LineChart, reading: str, *, tall: float, seen: str = "", data: Mapping[str, Any] | None = None
) -> Figure | None:
    """A chart in full width, or None when it has no line; `data` adds to what the page's script knows."""
    if not any(chart.curves):
        return None

    def draw(width: float, unique: str) -> str:
        height = tall if width > NARROW else min(tall, 290.0)
        return chart.draw((width, height), name=unique)

    return Figure(name, chart.title, reading, draw, seen=seen, data=chart.payload() | dict(data or {}))


def _course(
    groups: Sequence[Group],
    name: str,
    value: Callable[[Round], float | None],
    unit: str,
    reading: str,
    *,
    tall: float,
    bounds: tuple[float, float] | None = None,
) -> Figure | None:
    """A value of each evaluation over rounds; one without bounds gets a logarithmic scale where it needs it."""
    curves = tuple(group.curve(value) for group in groups)
    labels = tuple(group.label for group in groups)
    chart = LineChart(
        title=f"Test {name} over rounds",
        desc=f"Lines: {', '.join(labels)}. Test {name}{unit} against the round, mean over seeds.",
        x_label="round",
        y_label=f"test {name}{unit}",
        labels=labels,
        curves=curves,
        log_if_wide=bounds is None,
        bounds=bounds,
    )
    said = f"{reading} {_band_sentence(groups)} {drawn_sentence(groups, curves)}"
    return line_figure(name, chart, said.strip(), tall=tall)


def _band_sentence(groups: Sequence[Group]) -> str:
    if all(len(group.counted) == 1 for group in groups):
        return "Each line is a single run, so nothing here says how much another seed would change it."
    return "Lines are means over seeds; bands reach from the lowest to the highest seed of each round."
