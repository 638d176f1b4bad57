"""Spectra of the features: one picture of all methods, and one per method of a client's model against the average."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.report._charts import Figure, line_figure
from fedblade.report._data import briefly
from fedblade.report._html import details, figure, frames, grid, paragraph
from fedblade.report._lines import LineChart
from fedblade.report._measures import small_figure
from fedblade.results import (
    NAMED,
    Array,
    Curve,
    Group,
    Snapshots,
    Vector,
    complete,
    drawn_sentence,
    listing,
    side_of,
    snapshots,
)

_GLOBAL, _LOCAL = Array("spectrum", complete), Array("local_spectrum", complete)
_TITLE = "Spectrum: how much the features vary along each direction"
_LOCAL_TITLE = "One client's model against the averaged one"
_MOST_VALUES = 100
# A pixel of the logarithmic scale is a step of more than a hundredth.
_DIGITS = 3
# Below this share of the largest eigenvalue a float32 network has nothing but rounding to show.
_FLOOR = 1e-9
_BULK = 0.95


def spectra(groups: Sequence[Group]) -> str:
    """The pictures with their slider, or nothing where no run has stored a spectrum."""
    whole = snapshots(groups, _GLOBAL)
    if whole is None:
        return ""
    local = snapshots(groups, _LOCAL)
    drawn = _all_methods(groups, whole)
    content = figure(drawn) if drawn else ""
    if local is not None:
        content += _panels(groups, _against_local(groups, whole, local))
    return paragraph(_TITLE, "figure-title") + frames(whole.rounds, content)


def _panels(groups: Sequence[Group], pictures: Sequence[Figure]) -> str:
    """The panels of all methods with what they have in common; folded where they would fill the page."""
    shown = {picture.owner for picture in pictures}
    drawn = [index if index in shown else None for index in range(len(groups))]
    reading = (
        "Drawn through: the averaged model. Dotted: the model of one client of that round right after its local "
        "training, on the same test samples. Where the dotted line lies above, averaging has flattened directions the "
        f"client had; where both drop alike, the client's model had collapsed already. {drawn_sentence(groups, drawn)}"
    )
    content = grid(pictures) + paragraph(reading.strip())
    if len(pictures) > NAMED:
        return details(_LOCAL_TITLE, content)
    return paragraph(_LOCAL_TITLE, "figure-title lead") + content


def dimensions(groups: Sequence[Group]) -> int | None:
    """How many features there are, where all spectra agree on it."""
    return side_of(groups, _GLOBAL)


def _all_methods(groups: Sequence[Group], whole: Snapshots) -> Figure | None:
    length = max(len(values) for values in whole.last if values is not None)
    shown = f"the first {_MOST_VALUES} of {length}" if length > _MOST_VALUES else f"all {length}"
    chart = LineChart(
        title=_TITLE,
        desc="Eigenvalues of the covariance of the features on the test samples, largest first, one line per method.",
        x_label="direction, strongest first",
        y_label="variance along it",
        labels=tuple(group.label for group in groups),
        curves=tuple(_curve(values) for values in whole.last),
        span=_span([whole]),
        log=True,
    )
    reading = (
        f"Each line shows how much the features vary along their independent directions, strongest first ({shown}, "
        "on a logarithmic scale). Look at the shape, not the height: a flat line uses many directions, a steep one "
        f"has collapsed onto its first few. {drawn_sentence(groups, whole.last)}"
    )
    moving = {
        "frames": [[_values(found[at]) for found in whole.values if found[-1]] for at in range(len(whole.rounds))]
    }
    return line_figure("spectrum", chart, reading.strip(), tall=340, seen=_bulk_sentence(groups, whole), data=moving)


def _against_local(groups: Sequence[Group], whole: Snapshots, local: Snapshots) -> list[Figure]:
    """One panel per group; the local spectra are taken at the rounds of the global ones, or shortly before."""
    matched = snapshots(groups, _LOCAL, rounds=whole.rounds)
    span = _span([whole, local])
    if matched is None:
        return []
    drawn = (
        _panel(index, group, whole.values[index], matched.values[index], span) for index, group in enumerate(groups)
    )
    return [picture for picture in drawn if picture is not None]


def _panel(
    index: int,
    group: Group,
    whole: Sequence[Vector | None],
    local: Sequence[Vector | None],
    span: tuple[float, float],
) -> Figure | None:
    if whole[-1] is None or local[-1] is None:
        return None
    measured = "mean over clients" if group.personal else "averaged"
    chart = LineChart(
        title=group.label,
        desc=f"Spectrum of the features of {group.label}: {measured} and of one client's model.",
        x_label="direction, strongest first",
        y_label="variance along it",
        labels=(measured, "one client"),
        curves=(_curve(whole[-1]), _curve(local[-1])),
        span=span,
        log=True,
        keyed=False,
        owner=index,
    )
    drawn = small_figure(f"local-spectrum-{index}", chart, "")
    moving = {"frames": [[_values(a), _values(b)] for a, b in zip(whole, local, strict=True)]}
    return drawn and replace(drawn, data={**(drawn.data or {}), **moving}, owner=index)


def _curve(values: Vector | None) -> Curve | None:
    if values is None:
        return None
    known = [(float(at), value) for at, value in enumerate(values[:_MOST_VALUES], 1) if value is not None]
    places, heights = tuple(at for at, _ in known), tuple(value for _, value in known)
    return Curve(places, heights, heights, heights) if known else None


def _values(values: Vector | None) -> list[float | int | None]:
    return [] if values is None else briefly(values[:_MOST_VALUES], _DIGITS)


def _span(shown: Sequence[Snapshots]) -> tuple[float, float]:
    """The range of all rounds, so that the slider moves lines and not the scale."""
    values = [v for each in shown for found in each.values for vector in found for v in (vector or ())[:_MOST_VALUES]]
    positive = [value for value in values if value is not None and value > 0] or [1.0]
    high = max(positive)
    return max(min(positive), high * _FLOOR), high


def _bulk_sentence(groups: Sequence[Group], whole: Snapshots) -> str:
    """How many directions hold most of the variance, from the whole spectrum."""
    counts = []
    for group, values in zip(groups, whole.last, strict=True):
        known = sorted((max(0.0, value) for value in values or () if value is not None), reverse=True)
        if sum(known) > 0:
            counts.append((group.label, _needed(known), len(known)))
    if not counts:
        return ""
    if len(counts) > NAMED:
        counts = [min(counts, key=lambda each: each[1]), max(counts, key=lambda each: each[1])]
        lead = f"The first {counts[0][1]} to {counts[1][1]} directions"
        return f"{lead} hold 95 % of the variance (fewest: {counts[0][0]}, most: {counts[1][0]})."
    told = listing([f"{needed} of {length} for {label}" for label, needed, length in counts])
    return f"Here 95 % of the variance lies along {told} at the last round."


def _needed(known: Sequence[float]) -> int:
    wanted, held = _BULK * sum(known), 0.0
    for count, value in enumerate(known, 1):
        held += value
        if held >= wanted:
            return count
    return len(known)
