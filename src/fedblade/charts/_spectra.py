"""Spectra of the features: one chart of all methods, and one per method of a client's model against the average."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.charts._model import Axis, Chart, Line, LinePanel, Range, Series, group_panel, plain_series
from fedblade.charts._series import SPECTRUM_LENGTH
from fedblade.core.words import listing
from fedblade.results import (
    MOST_NAMED,
    Group,
    Snapshots,
    StoredArray,
    Vector,
    array_length,
    complete_list,
    coverage_sentence,
    snapshots,
)

_GLOBAL, _LOCAL = StoredArray("spectrum", complete_list), StoredArray("local_spectrum", complete_list)
_DIRECTION = Axis("direction, strongest first", whole=True)
_SHARE = "variance"
_FLOOR = 1e-3
"""The smallest share that is drawn, in percent. Smaller ones carry nothing, or are rounding errors."""
_MOST_VARIANCE = 0.95
_READING = (
    "Each line shows which share of the features' variance lies along each independent direction, strongest first "
    "({}, on a logarithmic scale that ends at 0.001 %). The shares of a line add up to 100 %. A flat line uses many "
    "directions; a line that starts high and drops at once has collapsed onto its first few. {}"
)
_LOCAL_READING = (
    "Solid: the averaged model. Dotted: the model of one client of that round right after its local training, "
    "on the same test samples. Where the dotted line lies above, averaging has weakened directions that the client's "
    "model used; where both drop alike, the client's model had collapsed already. {}"
)


@dataclass(frozen=True)
class Spectra:
    """The chart of all methods, the charts of single methods with a client's model, and the rounds to choose from."""

    rounds: tuple[int, ...]
    every_method: Chart
    against_local: tuple[Chart, ...]
    local_reading: str


def spectra(groups: Sequence[Group], most_rounds: int = 20) -> Spectra | None:
    """The spectra of at most `most_rounds` rounds, or None where no run has stored one."""
    whole = snapshots(groups, _GLOBAL, most=most_rounds)
    if whole is None:
        return None
    # The local spectra are taken at the rounds of the global ones, or shortly before.
    local, matched = snapshots(groups, _LOCAL, most=most_rounds), snapshots(groups, _LOCAL, rounds=whole.rounds)
    charts: tuple[Chart, ...] = ()
    if local is not None and matched is not None:
        span = _span([whole, local])
        pairs = [
            _pair_chart(index, group, whole.values[index], matched.values[index], span)
            for index, group in enumerate(groups)
        ]
        charts = tuple(chart for chart in pairs if chart is not None)
    owners = {chart.owner for chart in charts}
    drawn = coverage_sentence(groups, [index if index in owners else None for index in range(len(groups))])
    return Spectra(whole.rounds, _chart(groups, whole), charts, _LOCAL_READING.format(drawn).strip())


def feature_count(groups: Sequence[Group]) -> int | None:
    """How many features there are, where all spectra agree on it."""
    return array_length(groups, _GLOBAL)


def _chart(groups: Sequence[Group], whole: Snapshots) -> Chart:
    length = max(len(values) for values in whole.last if values is not None)
    shown = f"the first {SPECTRUM_LENGTH} of {length}" if length > SPECTRUM_LENGTH else f"all {length}"
    drawn = [values for values in whole.values if values[-1]]
    return Chart(
        name="spectrum",
        title="Spectrum: the share of the variance along each direction",
        about="Eigenvalues of the covariance of the features on the test samples, in percent of their sum.",
        panel=group_panel(
            groups,
            [_series(values) for values in whole.last],
            _DIRECTION,
            Axis(_SHARE, "%", scale="log", span=_span([whole])),
        ),
        reading=_READING.format(shown, coverage_sentence(groups, whole.last)).strip(),
        seen=_variance_sentence(groups, whole),
        frames=tuple(tuple(_shown_part(values[at]) for values in drawn) for at in range(len(whole.rounds))),
    )


def _pair_chart(
    index: int, group: Group, whole: Sequence[Vector | None], local: Sequence[Vector | None], span: Range
) -> Chart | None:
    averaged, client = _series(whole[-1]), _series(local[-1])
    if averaged is None or client is None:
        return None
    measured = "mean over clients" if group.personal else "averaged"
    return Chart(
        name=f"local-spectrum-{index}",
        title=group.label,
        about=f"Spectrum of the features of {group.label}: {measured} and of one client's model.",
        panel=LinePanel(
            x=_DIRECTION,
            y=Axis(_SHARE, "%", scale="log", span=span),
            names=(),
            lines=(Line(index, averaged, measured), Line(index, client, "one client")),
        ),
        owner=index,
        frames=tuple((_shown_part(a), _shown_part(b)) for a, b in zip(whole, local, strict=True)),
    )


def _series(values: Vector | None) -> Series | None:
    return plain_series([(float(at), value) for at, value in enumerate(_shown_part(values), 1) if value is not None])


def _shown_part(values: Vector | None) -> Vector:
    """The first eigenvalues in percent of the sum of all; what rounding has put below zero counts as zero."""
    known = [None if value is None else max(0.0, value) for value in values or ()]
    total = sum(value for value in known if value is not None) or 1.0
    return tuple(None if value is None else 100 * value / total for value in known[:SPECTRUM_LENGTH])


def _span(shown: Sequence[Snapshots]) -> Range:
    """The range of all rounds, so that the choice of a round moves lines and not the scale."""
    values = [value for s in shown for group in s.values for vector in group for value in _shown_part(vector)]
    positive = [value for value in values if value is not None and value > 0] or [1.0]
    high = max(positive)
    return min(max(min(positive), _FLOOR), high), high


def _variance_sentence(groups: Sequence[Group], whole: Snapshots) -> str:
    """How many directions have most of the variance, from the whole spectrum."""
    counts = []
    for group, values in zip(groups, whole.last, strict=True):
        known = sorted((max(0.0, value) for value in values or () if value is not None), reverse=True)
        if sum(known) > 0:
            counts.append((group.label, _directions(known), len(known)))
    if not counts:
        return ""
    if len(counts) > MOST_NAMED:
        fewest, most = min(counts, key=lambda entry: entry[1]), max(counts, key=lambda entry: entry[1])
        if fewest[1] == most[1]:
            return f"Here 95 % of the variance lies along {fewest[1]} directions for all {len(counts)}."
        spread = f"{fewest[1]} directions for {fewest[0]} (the fewest) and {most[1]} for {most[0]} (the most)"
        return f"Here 95 % of the variance lies along {spread}."
    listed = listing([f"{needed} of {length} for {label}" for label, needed, length in counts])
    return f"Here 95 % of the variance lies along {listed} at the last round."


def _directions(ordered: Sequence[float]) -> int:
    """How many of the largest variances make up most of their sum."""
    wanted, total = _MOST_VARIANCE * sum(ordered), 0.0
    for count, value in enumerate(ordered, 1):
        total += value
        if total >= wanted:
            return count
    return len(ordered)
