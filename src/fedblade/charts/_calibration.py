"""Is the model as sure as it is right? The reliability diagram."""

from collections.abc import Sequence

from fedblade.charts._arrays import Bin, fewest_answers, filled_bins
from fedblade.charts._model import PERCENT, Axis, Chart, group_panel
from fedblade.charts._series import group_series
from fedblade.core.words import short_listing
from fedblade.results import Group, coverage_sentence

_READING = (
    "Answers are grouped by how sure the model was. On the dashed diagonal, answers given with 80 % confidence are "
    "right in 80 % of cases; below it the model is too sure of itself, above it too cautious."
)


def reliability_chart(groups: Sequence[Group]) -> Chart | None:
    """Right answers against confidence at the last round, or None where no run has measured them."""
    series = [group_series(group, "reliability", "calibration") for group in groups]
    if not any(series):
        return None
    shared = [(group, values) for group, values in zip(groups, series, strict=True) if not group.personal]
    personal = [group.label for group in groups if group.personal]
    sentences = (
        _READING,
        _few_answers_sentence([filled_bins(group) for group in groups]),
        f"Left out: {short_listing(personal)}, where each client has a model of its own." if personal else "",
        coverage_sentence([group for group, _ in shared], [values for _, values in shared]),
    )
    return Chart(
        name="reliability",
        title="Is the model as sure as it is right?",
        about="Share of right answers against the confidence of the model, in bins of confidence, at the last round.",
        panel=group_panel(
            groups,
            series,
            Axis("confidence", "%"),
            Axis("right answers", "%", bounds=PERCENT, span=PERCENT),
            diagonal=True,
        ),
        reading=" ".join(filter(None, sentences)),
    )


def _few_answers_sentence(per_group: Sequence[Sequence[Bin]]) -> str:
    """How few answers are not drawn, and which share of all they are."""
    shares = [
        sum(n for _, _, n in bins if n < fewest_answers(bins)) / sum(n for _, _, n in bins)
        for bins in per_group
        if bins
    ]
    if not any(shares):
        return ""
    fewest = max(map(fewest_answers, per_group))
    return (
        f"Groups of fewer than {fewest} answers say too little and are not drawn (at most {100 * max(shares):.1f} % of "
        f"a method's answers)."
    )
