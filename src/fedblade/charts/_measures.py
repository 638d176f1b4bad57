"""Charts of one number over rounds, with a sentence on how to read the chart and one on what is seen."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.charts._model import Axis, Chart, Range, Scale, Series, group_panel
from fedblade.charts._sections import metric_by_number, section_numbers
from fedblade.charts._series import group_series
from fedblade.core.fields import Field
from fedblade.core.words import listing
from fedblade.results import MEAN_OVER_PERSONAL_MODELS, MOST_NAMED, Group, coverage_sentence, described_fields

_LOG_RATIO = 100
_ANSWERS = {
    "collapse": {
        "erank_feature": "Directions the features make use of; more means less collapse",
        "erank_proj": "Directions the projected features make use of; more means less collapse",
    },
    "geometry": {
        "nc2_feature_normalised": "Distance of the classes from an even spread; less is better",
        "nc_error": "Neural-collapse error; less is better",
    },
    "drift": {
        "update_cosine": "Agreement of two clients' updates; 1 is complete",
        "drift_norm": "How far clients move in a round",
    },
    "served": {
        "worst_class_accuracy": "Test accuracy of the worst class, %",
        "worst_decile_accuracy": "Accuracy for the worst tenth of clients, estimated by their labels, %",
    },
}
"""The numbers that can answer the question of a section; the first that was measured does.

The words stand at the top of the page, before any chart. So they say more than a label, which stands above its chart.
"""
_EXPECTED = "the accuracy that a client can expect, from its personal model's accuracy of each class"
_PERSONAL_MODELS = {"worst_decile_accuracy": _EXPECTED, "client_accuracy_mean": _EXPECTED}
"""Captions for methods without a global model; the default is the mean over personal models."""


def section_charts(groups: Sequence[Group], section: str, *, main: bool = True) -> list[Chart]:
    """The charts of a section of the page as far as runs have measured them: the main ones, or all others."""
    fields = [field for key in section_numbers(section) if (field := find_field(groups, key)) and field.main is main]
    return [chart for field in fields if (chart := field_chart(groups, field, _common_span(groups, field, fields)))]


def other_charts(groups: Sequence[Group]) -> list[Chart]:
    """The charts of fields that belong to no section, such as those of a user's own metric."""
    charts = [chart for field in other_fields(groups) if (chart := field_chart(groups, field))]
    return [replace(chart, name=f"metric-{number}") for number, chart in enumerate(charts, 1)]


def other_fields(groups: Sequence[Group]) -> list[Field]:
    """The measured fields that runs describe and no chart of the library claims."""
    described = {key for group in groups for run in group.runs for key in run.stored_fields or ()}
    return [field for field in described_fields(groups) if field.name in described - metric_by_number().keys()]


def find_field(groups: Sequence[Group], key: str) -> Field | None:
    """The description of a number by the first run that has one."""
    runs = (run for group in groups for run in group.runs)
    return next((run.fields[key] for run in runs if key in run.fields), None)


def field_chart(groups: Sequence[Group], field: Field, span: Range | None = None) -> Chart | None:
    """The chart of one field, or None where no run has measured it."""
    series = _series(groups, field.name)
    if not any(series):
        return None
    axis = field.unit or field.label
    personal = _PERSONAL_MODELS.get(field.name, MEAN_OVER_PERSONAL_MODELS)
    drawn = coverage_sentence(groups, series, of_model=field.subject == "model", personal=personal)
    return Chart(
        name=field.name.replace("_", "-"),
        title=field.label,
        about=f"{axis} against the round, one line per method, mean over seeds.",
        panel=group_panel(
            groups,
            series,
            Axis("round", whole=True),
            Axis(axis, scale="linear" if field.bounds else _scale(series, span), bounds=field.bounds, span=span),
        ),
        reading=f"{field.reading} {drawn}".strip(),
        seen=_sentence(groups, series, field.number_format),
    )


def section_answer(groups: Sequence[Group], section: str) -> str:
    """The number that answers the question of a section, in words; empty where no run has measured it."""
    for key, words in _ANSWERS.get(section, {}).items():
        field = find_field(groups, key)
        if field and (latest := latest_sentence(groups, key, field.number_format)):
            return f"{words}. {latest}"
    return ""


def latest_values(groups: Sequence[Group], key: str) -> list[tuple[str, float, float]]:
    """Label, last measured round and value there, of each group that has the number."""
    return _latest(groups, _series(groups, key))


def latest_sentence(groups: Sequence[Group], key: str, number_format: str) -> str:
    """`After round 40: a 1.2 and b 3.4.`; of many methods the lowest and the highest."""
    return _sentence(groups, _series(groups, key), number_format)


def _latest(groups: Sequence[Group], series: Sequence[Series | None]) -> list[tuple[str, float, float]]:
    pairs = zip(groups, series, strict=True)
    return [(group.label, values.x[-1], values.y[-1]) for group, values in pairs if values is not None]


def _sentence(groups: Sequence[Group], series: Sequence[Series | None], number_format: str) -> str:
    latest = _latest(groups, series)
    if not latest:
        return ""
    when = f"After round {latest[0][1]:g}" if len({at for _, at, _ in latest}) == 1 else "At the last round measured"
    mean = ", mean over seeds" if any(len(group.counted) > 1 for group in groups) else ""
    printed = [(label, _printed(value, number_format), value) for label, _, value in latest]
    if len(printed) <= MOST_NAMED:
        return f"{when}{mean}: {listing([f'{label} {text}' for label, text, _ in printed])}."
    low, high = min(printed, key=lambda entry: entry[2]), max(printed, key=lambda entry: entry[2])
    if low[1] == high[1]:
        return f"{when}{mean}: {low[1]} for all {len(printed)}."
    return f"{when}{mean}: lowest {low[1]} with {low[0]}, highest {high[1]} with {high[0]}."


def _printed(value: float, number_format: str) -> str:
    """The value in print, without a minus sign before zeros."""
    text, zero = format(value, number_format), format(0.0, number_format)
    return zero if text == format(-0.0, number_format) else text


def _scale(series: Sequence[Series | None], span: Range | None) -> Scale:
    """A logarithmic scale where the values differ by a factor of more than a hundred."""
    low, high = span or _range([values for values in series if values is not None])
    return "log" if low > 0 and high / low > _LOG_RATIO else "linear"


def _series(groups: Sequence[Group], key: str) -> list[Series | None]:
    return [group_series(group, "rounds", key) for group in groups]


def _common_span(groups: Sequence[Group], field: Field, fields: Sequence[Field]) -> Range | None:
    """The range of two charts that are read against each other: classes that a client has, and classes it lacks."""
    pair = [other.name for other in fields if _pair_key(other) == _pair_key(field)]
    if len(pair) == 1:
        return None
    present = [series for key in pair for series in _series(groups, key) if series is not None]
    return _range(present) if present else None


def _range(series: Sequence[Series]) -> Range:
    return min(min(values.low) for values in series), max(max(values.high) for values in series)


def _pair_key(field: Field) -> str:
    return field.name.replace("_missing", "_existing").replace("_unobserved", "_observed")
