"""The page's contents: its questions, each with the number that answers it first."""

import re
from collections.abc import Sequence

from fedblade.report._measures import Measure, latest_sentence
from fedblade.report._svg import escape
from fedblade.results import Group

_LEAD = '<p class="figure-title">What lies behind it</p>'
# By section: what to quote of it, the first that was measured.
_ANSWERS = {
    "collapse": (
        Measure("erank_feature", "Directions the features make use of; more means less collapse", "", "", ".1f"),
        Measure("erank_proj", "Directions the projected features make use of; more means less collapse", "", "", ".1f"),
    ),
    "geometry": (
        Measure("nc2_feature_normalised", "Distance of the classes from an even spread; less is better", "", "", ".2f"),
        Measure("nc_error", "Neural-collapse error; less is better", "", "", ".3f"),
    ),
    "drift": (
        Measure("update_cosine", "Agreement of two clients' updates; 1 is complete", "", "", ".2f"),
        Measure("drift_norm", "How far clients move in a round", "", "", ".3g"),
    ),
    "served": (
        Measure("worst_class_accuracy", "Test accuracy of the worst class, %", "", "", ".1f"),
        Measure(
            "worst_decile_accuracy",
            "Accuracy for the worst tenth of clients, estimated by their labels, %",
            "",
            "",
            ".1f",
        ),
    ),
}


def contents(groups: Sequence[Group], main: str) -> str:
    """Links to the sections found in the page's main part; those with an answer first."""
    headings = re.findall(r'<section id="(\w+)"[^>]*><h2[^>]*>([^<]*)</h2>', main)
    asked = [(name, heading, answer) for name, heading in headings if (answer := _answer(groups, name))]
    answers = "".join(f'<li><a href="#{name}">{heading}</a> {escape(answer)}</li>' for name, heading, answer in asked)
    links = " ".join(f'<a href="#{name}">{heading}</a>' for name, heading in headings if name not in _ANSWERS)
    return (
        '<nav class="contents" aria-label="On this page">'
        f"{f'{_LEAD}<ul>{answers}</ul>' if answers else ''}<p>{links}</p></nav>"
    )


def _answer(groups: Sequence[Group], name: str) -> str:
    for measure in _ANSWERS.get(name, ()):
        said = latest_sentence(groups, measure)
        if said:
            return f"{measure.title}. {said}"
    return ""
