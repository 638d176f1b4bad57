"""Whatever the report shows can be had as a file for a paper."""

import re

import pytest

from fedblade.figures._panels import build_panels
from fedblade.figures._specs import general_figures
from fedblade.report import build_report
from fedblade.results import group_runs, read_runs

pytestmark = pytest.mark.thorough

# The report's pictures that are no course of one number over rounds, with the figures that show the same.
FIGURES = {
    "accuracy": ("accuracy",),
    "loss": ("loss",),
    "label-map": ("label-map",),
    "spectrum": ("spectrum",),
    "local-spectrum": ("local-global-spectrum",),
    "cosines": ("class-cosines",),
    "by-class": ("class-accuracy",),
    "by-client": ("client-accuracy", "client-accuracy-estimated"),
    "confusion": ("confusion",),
    "reliability": ("reliability",),
    "per-byte": ("communication",),
    "per-second": ("training-time",),
}


@pytest.fixture(scope="module")
def pictures(complete, tmp_path_factory) -> set[str]:
    """Names of the pictures on the page, those of several methods or widths once."""
    page = build_report([complete], tmp_path_factory.mktemp("page") / "report.html").read_text()
    names = re.findall(r'<title id="([\w-]+)-title">', page)
    return {re.sub(r"-(wide|narrow|\d+)$", "", re.sub(r"-(wide|narrow)$", "", name)) for name in names}


@pytest.fixture(scope="module")
def figures(complete) -> dict[str, bool]:
    """Whether a figure has anything to draw, by its name."""
    groups = group_runs(read_runs([complete]))
    return {part.name: bool(build_panels(part, groups, strict=False)) for part in general_figures()}


def over_rounds() -> dict[str, str]:
    """The figure that shows a number over rounds, by the name that the number's picture has in the report."""
    parts = [part for part in general_figures() if part.draw == "rounds"]
    return {number.key.replace("_", "-"): part.name for part in parts for number in part.required}


def test_every_picture_of_the_report_is_a_figure_for_papers(pictures, figures):
    known = {name: (figure,) for name, figure in over_rounds().items()} | FIGURES
    assert pictures - set(known) == set(), "give them a figure in figures.toml"
    missing = {name for name in pictures if not all(figures.get(figure, False) for figure in known[name])}
    assert missing == set()


def test_runs_with_every_metric_have_every_figure_and_every_kind_of_picture(pictures, figures):
    assert {name for name, drawn in figures.items() if not drawn} == set()
    assert set(FIGURES) <= pictures
