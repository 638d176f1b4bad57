"""Put the page together: header, sections, style sheet and script in one file."""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from fedblade.charts import loss_chart, section_answer
from fedblade.charts.palette import COLOURS, COLOURS_ON_DARK, GRID, INK, MUTED
from fedblade.core.words import listing
from fedblade.report._again import run_again
from fedblade.report._blocks import Block, Paragraph, Section, trusted, wide_picture
from fedblade.report._explained import QUESTIONS, cost, other_section
from fedblade.report._header import default_heading, facts, finding, notices
from fedblade.report._participation import contributors_section, participation_section
from fedblade.report._results import certainty, results
from fedblade.report._selection import Selection, select
from fedblade.report._splits import splits
from fedblade.report._svg import swatch, xml_safe
from fedblade.report._tables import configuration, runs, versions_section
from fedblade.results import ComparisonRow, Group

SCRIPTS = ("page.js", "sort.js", "save.js")
"""What the page adds where scripts may run: charts that answer, tables that can be sorted, pictures to save."""


def page(groups: Sequence[Group], rows: Sequence[ComparisonRow], title: str | None, note: str = "") -> str:
    """The complete HTML document; `note` stands above the results."""
    shown = select(groups, rows)
    explained = [question.section(shown) for question in QUESTIONS]
    first = results(shown, rows)
    parts: list[Section | Block] = [
        *([Paragraph(note)] if note else []),
        *certainty(shown, rows),
        *_loss(shown),
        splits(groups),
        *(section for section in explained if section is not None),
        *other_section(shown),
        cost(shown),
        *_not_measured(groups, explained),
        runs(shown, rows[0].threshold),
        *participation_section(groups),
        *contributors_section(groups),
        *run_again(shown),
        configuration(shown),
        versions_section(groups),
    ]
    sections = [part for part in parts if isinstance(part, Section)]
    answers = [(section, answer) for section in sections if (answer := section_answer(groups, section.name))]
    answered = {section.name for section, _ in answers}
    return (
        templates()
        .get_template("page.html")
        .render(
            heading=title or default_heading(groups),
            finding=finding(rows),
            first=first,
            legend=shown.legend,
            names=[name for name, _ in shown.legend],
            facts=facts(groups),
            notices=notices(groups),
            answers=answers,
            links=[section for section in sections if section.name not in answered],
            parts=parts,
        )
    )


@functools.cache
def templates() -> jinja2.Environment:
    """The templates of the page; everything they print is escaped unless it is a drawing of this package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedblade.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else xml_safe(value),
    )
    environment.filters["as_json"] = _as_json
    environment.globals |= {
        "swatch": lambda index: trusted(swatch(index)),
        "ink": INK,
        "muted": MUTED,
        "grid": GRID,
        "colours": COLOURS,
        "colours_on_dark": COLOURS_ON_DARK,
        "style": trusted(_packaged("style.css")),
        "script": trusted("".join(map(_packaged, SCRIPTS))),
    }
    return environment


def _as_json(payload: Mapping[str, Any] | Sequence[Any]) -> Markup:
    """The payload as JSON for a block that a browser does not run.

    Only `<` can end such a block early, so it is written as an escape that JSON reads back.
    """
    return Markup(json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))  # noqa: S704


def _packaged(name: str) -> str:
    return (files("fedblade.report") / name).read_text(encoding="utf-8")


def _loss(shown: Selection) -> list[Section]:
    """The test loss over rounds, if it was measured."""
    pictures = [wide_picture(chart, tall=300) for chart in shown.of([loss_chart(shown.groups)])]
    return [Section("loss", "Test loss over rounds", pictures)] if pictures else []


def _not_measured(groups: Sequence[Group], explained: Sequence[Section | None]) -> list[Block]:
    """The metrics that the runs lack, and the setting that adds them."""
    absent = [question for question, section in zip(QUESTIONS, explained, strict=True) if section is None]
    if not absent:
        return []
    headings = listing([f"“{question.heading}”" for question in absent])
    metrics = dict.fromkeys((*_asked_metrics(groups), *(name for question in absent for name in question.metrics)))
    text = f"These runs have not recorded what answers {headings} To have it in the next report as well, add "
    return [Paragraph(text, "note absent", command=f"--set metrics={','.join(metrics)}", after=" to the command.")]


def _asked_metrics(groups: Sequence[Group]) -> list[str]:
    """The metrics that the runs were asked for."""
    tables = [run.config.get("evaluation") for group in groups for run in group.runs]
    stored = [table.get("metrics") for table in tables if isinstance(table, dict)]
    return list(dict.fromkeys(str(name) for names in stored if isinstance(names, list) for name in names))
