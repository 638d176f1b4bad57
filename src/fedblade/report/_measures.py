"""Scalars over rounds as small charts, each with a sentence on how to read it and one on what is seen."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.report._charts import SMALL, Figure
from fedblade.report._lines import LineChart
from fedblade.results import MEAN_OF_OWN, NAMED, Curve, Group, drawn_sentence, listing


@dataclass(frozen=True)
class Measure:
    """A key of the history and how to present it.

    `of_model` tells the global model from what clients send; `own` is what is shown where there is no global model.
    """

    key: str
    title: str
    y_label: str
    reading: str
    style: str = ".2f"
    bounds: tuple[float, float] | None = None
    of_model: bool = True
    own: str = MEAN_OF_OWN


def measured(groups: Sequence[Group], key: str) -> bool:
    """Whether any run has this key in its history."""
    return any(key in r.fields for group in groups for run in group.counted for r in run.history)


def measure_figures(groups: Sequence[Group], measures: Sequence[Measure]) -> list[Figure]:
    """One small chart for each measure that some run has."""
    return [drawn for measure in measures if (drawn := measure_figure(groups, measure)) is not None]


def pair_figures(groups: Sequence[Group], pair: Sequence[Measure]) -> list[Figure]:
    """Charts that are read against each other, on one scale."""
    present = [curve for measure in pair for curve in _curves(groups, measure) if curve is not None]
    if not present:
        return []
    span = (min(min(curve.low) for curve in present), max(max(curve.high) for curve in present))
    drawn = (measure_figure(groups, measure, span=span) for measure in pair)
    return [picture for picture in drawn if picture is not None]


def measure_figure(
    groups: Sequence[Group], measure: Measure, *, span: tuple[float, float] | None = None
) -> Figure | None:
    """The chart of one measure, or None where no run has it."""
    curves = _curves(groups, measure)
    chart = LineChart(
        title=measure.title,
        desc=f"{measure.y_label} against the round, one line per method, mean over seeds.",
        x_label="round",
        y_label=measure.y_label,
        labels=tuple(group.label for group in groups),
        curves=curves,
        log_if_wide=measure.bounds is None,
        bounds=measure.bounds,
        span=span,
        keyed=False,
    )
    drawn = drawn_sentence(groups, curves, of_model=measure.of_model, own=measure.own)
    reading = f"{measure.reading} {drawn}".strip()
    return small_figure(measure.key.replace("_", "-"), chart, reading, latest_sentence(groups, measure))


def small_figure(name: str, chart: LineChart, reading: str, seen: str = "") -> Figure | None:
    """A chart that shares its row with another one and is drawn once, for all screens; None when it has no line."""
    if not any(chart.curves):
        return None

    def draw(_: float, unique: str) -> str:
        return chart.draw(SMALL, name=unique)

    return Figure(name, chart.title, reading, draw, seen=seen, data=chart.payload())


def latest_values(groups: Sequence[Group], key: str) -> list[tuple[str, float, float]]:
    """Label, last measured round and value there, of each group that has the key."""
    found = []
    for group in groups:
        curve = group.curve(lambda r: r.fields.get(key))
        if curve is not None:
            found.append((group.label, curve.rounds[-1], curve.mean[-1]))
    return found


def latest_sentence(groups: Sequence[Group], measure: Measure) -> str:
    """The last values in words."""
    found = latest_values(groups, measure.key)
    return sentence(groups, [(at, label, value) for label, at, value in found], measure.style)


def sentence(groups: Sequence[Group], found: Sequence[tuple[float, str, float]], style: str, unit: str = "") -> str:
    """`After round 40: a 1.2 and b 3.4.` of (round, label, value); of many methods the lowest and the highest."""
    if not found:
        return ""
    when = f"After round {found[0][0]:g}" if len({at for at, _, _ in found}) == 1 else "At the last round measured"
    mean = ", mean over seeds" if any(len(group.counted) > 1 for group in groups) else ""
    if len(found) <= NAMED:
        return f"{when}{mean}: {listing([f'{label} {value:z{style}}{unit}' for _, label, value in found])}."
    low, high = min(found, key=lambda each: each[2]), max(found, key=lambda each: each[2])
    return f"{when}{mean}: from {low[2]:z{style}}{unit} ({low[1]}) to {high[2]:z{style}}{unit} ({high[1]})."


def _curves(groups: Sequence[Group], measure: Measure) -> tuple[Curve | None, ...]:
    return tuple(group.curve(lambda r: r.fields.get(measure.key)) for group in groups)
