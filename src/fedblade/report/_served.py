"""Who is served? Accuracy by class and by client, mistakes and calibration."""

import math
from collections.abc import Sequence

from fedblade.report._calibration import calibration_figures
from fedblade.report._charts import Figure
from fedblade.report._clients import client_figure
from fedblade.report._heatmap import HeatMap, class_names, maps_of, strongest
from fedblade.report._html import Column, details, grid, name_cell, paragraph, section, table
from fedblade.report._lines import LineChart
from fedblade.report._measures import Measure, measure_figures, small_figure
from fedblade.results import (
    MISSING,
    NAMED,
    Array,
    Curve,
    Group,
    Vector,
    drawn_sentence,
    listing,
    own_sentence,
    snapshots,
    square,
    vector,
)

METRICS = ("classes", "calibration")

_MOST_COLUMNS = 30
_PERCENT = (0.0, 100.0)
_INTRO = (
    "One accuracy can hide much: a model may be right on average and useless for a class that few clients have, or for "
    "a client whose labels are rare."
)
_EXPECTED_OF_OWN = "what each client can expect of its own model's accuracies by class"
_MEASURES = (
    Measure(
        "worst_class_accuracy",
        "The worst class over rounds",
        "accuracy, %",
        "Test accuracy of the class the model knows least, in each round. At 0 there is a class it never gets right.",
        ".1f",
        _PERCENT,
    ),
    Measure(
        "worst_decile_accuracy",
        "The worst tenth of the clients",
        "accuracy, %",
        "Mean accuracy of the tenth of the clients that fare worst. Higher is fairer. Estimated: what a client with "
        "its mix of labels can expect of these accuracies by class.",
        ".1f",
        _PERCENT,
        own=_EXPECTED_OF_OWN,
    ),
    Measure(
        "client_accuracy_mean",
        "Mean accuracy over clients",
        "accuracy, %",
        "Every client counts the same here, however many samples it has. Estimated from its mix of labels, as for the "
        "worst tenth.",
        ".1f",
        _PERCENT,
        own=_EXPECTED_OF_OWN,
    ),
)


def row_shares(stored: object) -> Vector | None:
    """A square of counts as shares of their rows, None in rows without samples; None for anything else."""
    counts = square(stored)
    if counts is None:
        return None
    side = math.isqrt(len(counts))
    rows = [[value or 0.0 for value in counts[at : at + side]] for at in range(0, len(counts), side)]
    return tuple(value / sum(row) if sum(row) else None for row in rows for value in row)


_CLASSES = Array("class_accuracy", vector)


def served(groups: Sequence[Group]) -> str:
    """The section, or nothing where no run has measured any of it."""
    found = [each for each in (_by_class(groups), client_figure(groups)) if each is not None]
    found += measure_figures(groups, _MEASURES)
    found += calibration_figures(groups)
    folded = _class_table(groups) + _confusion(groups)
    if not found and not folded:
        return ""
    return section("served", "Who is served?", paragraph(_INTRO, "intro"), grid(found), folded)


def _by_class(groups: Sequence[Group]) -> Figure | None:
    shown = snapshots(groups, _CLASSES, most=1)
    if shown is None:
        return None
    chart = LineChart(
        title="Accuracy by class",
        desc="Test accuracy of each class at the last round, classes of each method sorted from worst to best.",
        x_label="class, worst first",
        y_label="accuracy, %",
        labels=tuple(group.label for group in groups),
        curves=tuple(_sorted(values) for values in shown.last),
        bounds=_PERCENT,
        keyed=False,
    )
    reading = (
        "Test accuracy of every class after the last round, sorted from worst to best for each method by itself. A "
        "flat line treats classes alike; a deep left end means that some are given up."
    )
    reading = f"{reading} {drawn_sentence(groups, shown.last)}".strip()
    worst = [(group.label, min(known)) for group, v in zip(groups, shown.last, strict=True) if (known := _known(v))]
    told = listing([f"{label} {value:.1f} %" for label, value in worst]) if len(worst) <= NAMED else ""
    of = "Worst class by the mean over seeds" if any(len(group.counted) > 1 for group in groups) else "Worst class"
    return small_figure("by-class", chart, reading, f"{of}: {told}." if told else "")


def _class_table(groups: Sequence[Group]) -> str:
    shown = snapshots(groups, _CLASSES, most=1)
    lengths = {len(values) for values in shown.last if values is not None} if shown else set()
    if shown is None or len(lengths) != 1 or max(lengths) > _MOST_COLUMNS:
        return ""
    columns = [Column("method", numeric=False), *map(Column, class_names(groups, max(lengths)))]
    rows = [
        [name_cell(index, group.label), *(MISSING if v is None else f"{v:.1f}" for v in values)]
        for index, (group, values) in enumerate(zip(groups, shown.last, strict=True))
        if values is not None
    ]
    said = own_sentence(groups)
    listed = table("Accuracy of each class at the last round", columns, rows)
    return details("Accuracy of each class, %", listed + (paragraph(said) if said else ""))


def _confusion(groups: Sequence[Group]) -> str:
    found = maps_of(groups, Array("confusion", row_shares))
    if found is None:
        return ""
    names, shown = found
    heat = HeatMap("confusion", "Confusion of classes", names, "answer", "true class", signed=False)
    reading = (
        "Each row is a true class and shows how its test samples are answered; a row adds up to 100 %. A strong "
        "diagonal is right answers, a mark off the diagonal a habitual mistake, a strong column a class answered too "
        "often."
    )
    said = (reading, _mistakes(groups, shown.last, names), drawn_sentence(groups, shown.last))
    content = heat.panels(groups, shown) + paragraph(" ".join(filter(None, said)))
    return details("Which classes are taken for which", content)


def _mistakes(groups: Sequence[Group], last: Sequence[Vector | None], names: Sequence[str]) -> str:
    """The most frequent mistake of each method at the last round."""
    worst = [(group.label, strongest(values, len(names))) for group, values in zip(groups, last, strict=True)]
    told = [
        f"{names[found[1]]} taken for {names[found[2]]} by {label} ({100 * found[0]:.1f} %)"
        for label, found in worst
        if found is not None and found[0] > 0
    ]
    return f"Most frequent mistake at the last round: {listing(told)}." if told and len(told) <= NAMED else ""


def _sorted(values: Vector | None) -> Curve | None:
    known = tuple(sorted(_known(values)))
    return Curve(tuple(range(1, len(known) + 1)), known, known, known) if known else None


def _known(values: Vector | None) -> list[float]:
    return [value for value in values or () if value is not None]
