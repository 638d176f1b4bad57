"""Accuracy and loss over rounds, and accuracy for what was sent and for the time spent."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.charts._crowd import MOST_BANDS
from fedblade.charts._measures import field_chart, find_field
from fedblade.charts._model import Axis, Chart, Series, group_panel
from fedblade.charts._series import group_series
from fedblade.core.words import short_listing
from fedblade.results import Group, coverage_sentence, size_unit

_PER_BYTE = (
    "Test accuracy against the bytes sent so far, up and down. A line further left reaches the same accuracy with less "
    "traffic."
)
_PER_SECOND = (
    "Test accuracy against the time of training and aggregation so far, on the machine of the run. Lines can be "
    "compared only if nothing else was running on that machine."
)


def accuracy_chart(groups: Sequence[Group]) -> Chart | None:
    """Test accuracy over rounds, or None when nothing was evaluated."""
    return _over_rounds(groups, "accuracy")


def loss_chart(groups: Sequence[Group]) -> Chart | None:
    """Test loss over rounds, or None when nothing was evaluated."""
    return _over_rounds(groups, "loss")


def traffic_chart(groups: Sequence[Group]) -> Chart | None:
    """Accuracy against everything sent so far, or None where runs do not say both."""
    series = [group_series(group, "traffic", "test_accuracy") for group in groups]
    unit, num_bytes = size_unit(max((values.x[-1] for values in series if values is not None), default=0.0))
    scaled = [values and replace(values, x=tuple(x / num_bytes for x in values.x)) for values in series]
    nothing = [group.label for group, values in zip(groups, series, strict=True) if values and not values.x[-1]]
    reading = (
        f"{_PER_BYTE} Nothing is sent with {short_listing(nothing)}, whose line stands at 0." if nothing else _PER_BYTE
    )
    return _against(groups, "per-byte", "Accuracy for what is sent", Axis("sent up and down", unit), scaled, reading)


def time_chart(groups: Sequence[Group]) -> Chart | None:
    """Accuracy against the time spent on training so far, or None where runs do not say both."""
    series = [group_series(group, "time", "test_accuracy") for group in groups]
    axis = Axis("training seconds")
    return _against(groups, "per-second", "Accuracy for the time spent", axis, series, _PER_SECOND)


def _over_rounds(groups: Sequence[Group], name: str) -> Chart | None:
    field = find_field(groups, f"test_{name}")
    chart = None if field is None else field_chart(groups, field)
    if chart is None:
        return None
    names = short_listing([group.label for group in groups])
    return replace(
        chart,
        name=name,
        title=f"{chart.title} over rounds",
        about=f"Lines: {names}. {chart.panel.y.words.capitalize()} against the round, mean over seeds.",
        reading=f"{chart.reading} {_band_sentence(groups)}".strip(),
        seen="",
    )


def _against(
    groups: Sequence[Group], name: str, title: str, x: Axis, series: Sequence[Series | None], reading: str
) -> Chart | None:
    over_rounds = accuracy_chart(groups)
    if over_rounds is None or not any(series):
        return None
    return Chart(
        name=name,
        title=title,
        about=f"Test accuracy in percent against {x.words}, one line per method, mean over seeds.",
        panel=group_panel(groups, series, x, over_rounds.panel.y),
        reading=f"{reading} {coverage_sentence(groups, series)}".strip(),
    )


def _band_sentence(groups: Sequence[Group]) -> str:
    if all(len(group.counted) == 1 for group in groups):
        return "Each line is a single run, so the chart cannot say how much another seed would change."
    if len(groups) > MOST_BANDS:
        return "Lines are means over seeds."
    return "Lines are means over seeds; bands reach from the lowest to the highest seed of each round."
