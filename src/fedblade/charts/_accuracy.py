"""Accuracy and loss over rounds, and accuracy for what was sent and for the time spent."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.charts._model import PERCENT, Axis, Chart, Range, Series, group_panel
from fedblade.charts._series import group_series
from fedblade.core.words import listing
from fedblade.results import Group, coverage_sentence

_MEGABYTE = 1e6
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_ACCURACY = (
    "The share of test samples the model answers rightly. Higher is better, and rising earlier means fewer rounds of "
    "communication."
)
_LOSS = (
    "The cross-entropy of the model's answers on the test samples. Lower is better. Loss that rises while accuracy "
    "stands still means wrong answers are given with more confidence; methods that train with different losses are "
    "best compared by accuracy."
)
_PER_BYTE = (
    "Test accuracy against the bytes sent so far, both ways. A line further left reaches the same accuracy with less "
    "traffic."
)
_PER_SECOND = (
    "Test accuracy against the time of training and aggregation so far, on the machine that ran it. Comparable only "
    "where nothing else was running on that machine."
)


def accuracy_chart(groups: Sequence[Group]) -> Chart | None:
    """Test accuracy over rounds, or None when nothing was evaluated."""
    return _over_rounds(groups, "accuracy", "%", _ACCURACY, bounds=PERCENT)


def loss_chart(groups: Sequence[Group]) -> Chart | None:
    """Test loss over rounds, or None when nothing was evaluated."""
    return _over_rounds(groups, "loss", "", _LOSS)


def traffic_chart(groups: Sequence[Group]) -> Chart | None:
    """Accuracy against everything sent so far, or None where runs do not say both."""
    series = [group_series(group, "traffic", "test_accuracy") for group in groups]
    most = max((values.x[-1] for values in series if values is not None), default=0.0) * _MEGABYTE
    size, unit = next(((size, name) for size, name in _UNITS if most >= size), (1.0, "bytes"))
    scaled = [values and replace(values, x=tuple(x * _MEGABYTE / size for x in values.x)) for values in series]
    nothing = [group.label for group, values in zip(groups, series, strict=True) if values and not values.x[-1]]
    reading = f"{_PER_BYTE} Nothing is sent with {listing(nothing)}, whose line stands at 0." if nothing else _PER_BYTE
    return _against(groups, "per-byte", "Accuracy for what is sent", Axis("sent up and down", unit), scaled, reading)


def time_chart(groups: Sequence[Group]) -> Chart | None:
    """Accuracy against the time spent on training so far, or None where runs do not say both."""
    series = [group_series(group, "time", "test_accuracy") for group in groups]
    axis = Axis("training seconds")
    return _against(groups, "per-second", "Accuracy for the time spent", axis, series, _PER_SECOND)


def _over_rounds(
    groups: Sequence[Group], name: str, unit: str, reading: str, *, bounds: Range | None = None
) -> Chart | None:
    series = [group_series(group, "rounds", f"test_{name}") for group in groups]
    names = tuple(group.label for group in groups)
    axis = Axis(f"test {name}", unit, scale="linear" if bounds else "automatic", bounds=bounds)
    if not any(series):
        return None
    return Chart(
        name=name,
        title=f"Test {name} over rounds",
        about=f"Lines: {', '.join(names)}. {axis.words.capitalize()} against the round, mean over seeds.",
        panel=group_panel(groups, series, Axis("round", whole=True), axis),
        reading=f"{reading} {_band_sentence(groups)} {coverage_sentence(groups, series)}".strip(),
    )


def _against(
    groups: Sequence[Group], name: str, title: str, x: Axis, series: Sequence[Series | None], reading: str
) -> Chart | None:
    if not any(series):
        return None
    y = Axis("test accuracy", "%", bounds=PERCENT)
    return Chart(
        name=name,
        title=title,
        about=f"Test accuracy in percent against {x.words}, one line per method, mean over seeds.",
        panel=group_panel(groups, series, x, y),
        reading=f"{reading} {coverage_sentence(groups, series)}".strip(),
    )


def _band_sentence(groups: Sequence[Group]) -> str:
    if all(len(group.counted) == 1 for group in groups):
        return "Each line is a single run, so nothing here says how much another seed would change it."
    return "Lines are means over seeds; bands reach from the lowest to the highest seed of each round."
