"""Is the model as sure as it is right? The reliability diagram and the calibration error."""

import math
from collections.abc import Mapping, Sequence

from fedblade.report._charts import Figure
from fedblade.report._lines import LineChart
from fedblade.report._measures import Measure, measure_figures, small_figure
from fedblade.results import Array, Curve, Group, Vector, drawn_sentence, listing, snapshots, vector

_PERCENT = (0.0, 100.0)
# A bin with fewer answers than the smaller of these says more about chance than about the model.
_FEW, _FEW_SHARE = 20, 0.02
_READING = (
    "Answers gathered by how sure the model was. On the dashed diagonal, answers given with 80 % confidence are right "
    "in 80 % of cases; below it the model is too sure of itself, above it too cautious."
)
_ECE = Measure(
    "ece",
    "Calibration error over rounds",
    "ECE",
    "The mean gap between how sure the model is and how often it is right (expected calibration error, a share). Lower "
    "is better.",
    ".3f",
)


def calibration_figures(groups: Sequence[Group]) -> list[Figure]:
    """The reliability diagram and the error over rounds, as far as runs have measured them."""
    diagram = _reliability(groups)
    return ([diagram] if diagram else []) + measure_figures(groups, [_ECE])


def bin_sums(stored: object) -> Vector | None:
    """Sum of confidences, number of right answers and number of answers, bin after bin; None for anything else.

    Sums can be averaged over seeds; means of bins cannot, because a bin holds other numbers of answers in each.
    """
    if not isinstance(stored, Mapping):
        return None
    parts = [vector(stored.get(name)) for name in ("confidence", "accuracy", "count")]
    sure, right, count = (() if part is None else part for part in parts)
    if not count or {len(sure), len(right)} != {len(count)}:
        return None
    known = (
        (0.0, 0.0, 0.0) if a is None or b is None or n is None else (a * n, b * n, n)
        for a, b, n in zip(sure, right, count, strict=True)
    )
    return tuple(value for each in known for value in each)


def _reliability(groups: Sequence[Group]) -> Figure | None:
    shown = snapshots(groups, Array("calibration", bin_sums), most=1)
    if shown is None:
        return None
    one_model = [group for group in groups if not group.personal]
    per_group = [
        [] if group.personal else filled_bins(values, len(group.counted))
        for group, values in zip(groups, shown.last, strict=True)
    ]
    curves = tuple(reliability_curve(bins) for bins in per_group)
    chart = LineChart(
        title="Is the model as sure as it is right?",
        desc="Share of right answers against the confidence of the model, in bins of confidence, at the last round.",
        x_label="confidence, %",
        y_label="right answers, %",
        labels=tuple(group.label for group in groups),
        curves=curves,
        span=_PERCENT,
        bounds=_PERCENT,
        keyed=False,
        whole=False,
        ideal=Curve(_PERCENT, _PERCENT, _PERCENT, _PERCENT),
    )
    present = [curve for group, curve in zip(groups, curves, strict=True) if not group.personal]
    own = [group.label for group in groups if group.personal]
    many = f"Left out: {listing(own)}, where each client has a model of its own." if own else ""
    said = (_READING, _too_few(per_group), many, drawn_sentence(one_model, present))
    return small_figure("reliability", chart, " ".join(filter(None, said)))


def filled_bins(values: Vector | None, seeds: int) -> list[tuple[float, float, float]]:
    """Confidence, right answers and answers of all seeds together, of the bins that have any."""
    sums = [(value or 0.0) * seeds for value in values or ()]
    return [(sums[at], sums[at + 1], sums[at + 2]) for at in range(0, len(sums), 3) if sums[at + 2] > 0]


def _enough(bins: Sequence[tuple[float, float, float]]) -> int:
    """How many answers a bin needs to be drawn."""
    return math.ceil(min(_FEW, _FEW_SHARE * sum(count for _, _, count in bins)))


def reliability_curve(bins: Sequence[tuple[float, float, float]]) -> Curve | None:
    """Right answers against confidence, both in percent, of the bins with enough answers."""
    enough = _enough(bins)
    pairs = sorted((100 * sure / n, 100 * right / n) for sure, right, n in bins if n >= enough)
    across, up = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    return Curve(across, up, up, up) if pairs else None


def _too_few(per_group: Sequence[Sequence[tuple[float, float, float]]]) -> str:
    """How few answers are not drawn, and which share of all they are."""
    shares = [
        sum(n for _, _, n in bins if n < _enough(bins)) / sum(n for _, _, n in bins) for bins in per_group if bins
    ]
    if not any(shares):
        return ""
    fewest = max(map(_enough, per_group))
    return (
        f"Where fewer than {fewest} answers were gathered there is too little to go by, and nothing is drawn (at most "
        f"{100 * max(shares):.1f} % of a method's answers)."
    )
