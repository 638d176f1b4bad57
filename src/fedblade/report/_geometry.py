"""Do classes separate as they should? Neural collapse and the angles between class means."""

import re
from collections.abc import Sequence

from fedblade.report._heatmap import HeatMap, maps_of, strongest
from fedblade.report._html import details, grid, paragraph, section
from fedblade.report._measures import Measure, measure_figures, measured
from fedblade.results import NAMED, Array, Group, Vector, drawn_sentence, listing, square

METRICS = ("nc1", "nc2", "nc_error", "class_means")

_VARIANT = re.compile("(nc1|nc2|nc_error)(?:_(feature|proj))?_(.+)")
_INTRO = (
    "A well-trained classifier does two things to its features: samples of one class huddle around their class mean, "
    "and the class means spread out as evenly as they can, every pair at the same wide angle. Together this is called "
    "neural collapse, which despite its name is wanted. The measures below say how far each model is from it; it takes "
    "both, for a model that puts all classes into one place is tidy as well."
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
_DEFINITIONS = {
    "unit": _NC1.format("by direction only"),
    "ratio": _NC1.format("as a share of all"),
    "pinv": _NC1.format("against the gaps between classes"),
    "fro": "How far the cosines between class means are from the even ones, all pairs together (Frobenius norm); it "
    "grows with the number of classes. 0 means perfectly even, lower is better.",
    "normalised": "How far the class means are from the evenly spread arrangement in length and direction, on one "
    "scale for any number of classes. 0 means perfectly even, lower is better.",
    "equinorm": "How much the class means differ in length, as a share of their mean length. 0 means equal lengths.",
    "equiangle": "How far the cosine between two class means is from the even one, on average. 0 means evenly spread.",
    "centred": "The same error when prototypes are seen from the centre of all. Lower is better.",
}
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


def _first(groups: Sequence[Group], variants: Sequence[Measure]) -> Measure | None:
    return next((measure for measure in variants if measured(groups, measure.key)), None)


def _others(groups: Sequence[Group]) -> list[Measure]:
    """Every other definition of the same measures that a run has."""
    keys = sorted({key for group in groups for run in group.counted for r in run.history for key in r.fields})
    found = ((key, _VARIANT.fullmatch(key)) for key in keys)
    return [_variant(key, *parts.groups()) for key, parts in found if parts is not None]


def _variant(key: str, kind: str, where: str | None, definition: str) -> Measure:
    of = {"proj": " of what the classifier receives", "feature": " of the features"}.get(where or "", "")
    name = {"nc1": "NC1", "nc2": "NC2", "nc_error": "Neural-collapse error"}[kind]
    return Measure(key, f"{name}{of}, {definition}", f"{kind}, {definition}", _DEFINITIONS.get(definition, _NC2), ".3g")


def _cosines(groups: Sequence[Group]) -> str:
    found = maps_of(groups, Array("class_cosines", square))
    if found is None:
        return ""
    names, shown = found
    heat = HeatMap("cosines", "Cosines between class means", names, "class", "class", signed=True)
    reading = (
        "Each cell is the cosine between the mean features of two classes, seen from the centre of all. The diagonal "
        f"is 1 by definition. Ideally all other cells have the same value, {-1 / max(1, len(names) - 1):.2f} for "
        f"{len(names)} classes; a blue cell off the diagonal is a pair of classes the model finds alike."
    )
    said = (reading, _alike(groups, shown.last, names), drawn_sentence(groups, shown.last))
    return (
        paragraph("Which classes look alike", "figure-title lead")
        + heat.panels(groups, shown)
        + paragraph(" ".join(filter(None, said)))
    )


def _alike(groups: Sequence[Group], last: Sequence[Vector | None], names: Sequence[str]) -> str:
    """The most alike pair of each method at the last round."""
    pairs = [(group.label, strongest(values, len(names))) for group, values in zip(groups, last, strict=True)]
    told = [f"{names[p[2]]} and {names[p[1]]} for {label} ({p[0]:.2f})" for label, p in pairs if p is not None]
    return f"Most alike at the last round: {listing(told)}." if told and len(told) <= NAMED else ""
