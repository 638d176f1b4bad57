"""Do classes separate as they should? Neural collapse and the angles between class means."""

from collections.abc import Sequence

from fedblade.report._arrays import Array, Vector, side_of, snapshots, square
from fedblade.report._groups import Group
from fedblade.report._heatmap import HeatMap, rounds_within
from fedblade.report._html import details, grid, paragraph, section
from fedblade.report._measures import Measure, measure_figures, measured
from fedblade.report._words import listing

METRICS = ("nc1", "nc2", "nc_error", "class_means")

_COSINES = Array("class_cosines", square)
_NAMED = 4
_INTRO = (
    "A well-trained classifier does two things to its features: samples of one class huddle around their class mean, "
    "and the class means spread out as evenly as they can, every pair at the same wide angle. Together this is called "
    "neural collapse, which despite its name is wanted. The measures below say how far each model is from it."
)
_NC1 = "How much samples of one class scatter around their mean, {}. 0 means a class is one point; lower is tidier."
_NC2 = "How far the class means are from the evenly spread arrangement; 0 means perfectly even, lower is better."
_TIGHT = (
    Measure("nc1_feature_unit", "Scatter within classes (NC1)", "NC1", _NC1.format("by direction only"), ".3f", (0, 1)),
    Measure(
        "nc1_feature_ratio", "Scatter within classes (NC1)", "NC1", _NC1.format("as a share of all"), ".3f", (0, 1)
    ),
    Measure("nc1_feature_pinv", "Scatter within classes (NC1)", "NC1", _NC1.format("against the gaps between"), ".3g"),
)
_EVEN = (
    Measure("nc2_feature_normalised", "Uneven spread of class means (NC2)", "NC2", _NC2, ".3f"),
    Measure("nc2_feature_fro", "Uneven spread of class means (NC2)", "NC2", _NC2, ".2f"),
)
_ERROR = Measure(
    "nc_error",
    "Neural-collapse error",
    "error",
    "The mean squared gap between the cosines of two classes' prototypes and those of the ideal arrangement. Lower is "
    "better; prototypes are taken where the classifier looks, after a projection if the method has one.",
    ".3f",
)


def geometry(groups: Sequence[Group]) -> str:
    """The section, or nothing where no run has measured any of it."""
    main = [m for m in (_first(groups, _TIGHT), _first(groups, _EVEN), _ERROR) if m and measured(groups, m.key)]
    shown = {measure.key for measure in main}
    more = [m for m in _others(groups) if m.key not in shown]
    cosines = _cosines(groups)
    if not main and not more and not cosines:
        return ""
    folded = details("Other variants of these measures", grid(measure_figures(groups, more))) if more else ""
    content = (grid(measure_figures(groups, main)), folded, cosines)
    return section("geometry", "Do classes separate as they should?", paragraph(_INTRO, "intro"), *content)


def class_names(groups: Sequence[Group], side: int) -> tuple[str, ...]:
    """The classes' names where the runs agree on them, otherwise their numbers."""
    found = {run.partition.class_names for group in groups for run in group.runs if run.partition}
    names = found.pop() if len(found) == 1 else None
    return names if names is not None and len(names) == side else tuple(map(str, range(side)))


def _first(groups: Sequence[Group], variants: Sequence[Measure]) -> Measure | None:
    return next((measure for measure in variants if measured(groups, measure.key)), None)


def _others(groups: Sequence[Group]) -> list[Measure]:
    keys = sorted({key for group in groups for run in group.counted for r in run.history for key in r.fields})
    readings = {"nc1": _NC1.format("in this variant"), "nc2": _NC2, "nc_error": _NC2}
    kinds = ((key, next((kind for kind in readings if key.startswith(kind)), None)) for key in keys)
    return [Measure(key, key, key, readings[kind], ".3g") for key, kind in kinds if kind is not None]


def _cosines(groups: Sequence[Group]) -> str:
    side = side_of(groups, _COSINES)
    shown = snapshots(groups, _COSINES, most=rounds_within(side, len(groups))) if side else None
    if side is None or shown is None:
        return ""
    names = class_names(groups, side)
    heat = HeatMap("cosines", "Cosines between class means", names, "class", "class", signed=True)
    reading = (
        "Each cell is the cosine between the mean features of two classes, seen from the centre of all. The diagonal "
        f"is 1 by definition. Ideally all other cells have the same value, {-1 / max(1, side - 1):.2f} for {side} "
        "classes; a blue cell off the diagonal is a pair of classes the model finds alike."
    )
    return (
        paragraph("Which classes look alike", "figure-title lead")
        + heat.panels(groups, shown)
        + paragraph(f"{reading} {_alike(groups, shown.last, names)}")
    )


def _alike(groups: Sequence[Group], last: Sequence[Vector | None], names: Sequence[str]) -> str:
    """The most alike pair of each method at the last round."""
    side = len(names)
    told = []
    for group, values in zip(groups, last, strict=True):
        pairs = [
            (value, row, column)
            for row in range(side)
            for column in range(row)
            if values is not None and (value := values[row * side + column]) is not None
        ]
        if pairs:
            value, row, column = max(pairs)
            told.append(f"{names[column]} and {names[row]} for {group.label} ({value:.2f})")
    return f"Most alike at the last round: {listing(told)}." if told and len(told) <= _NAMED else ""
