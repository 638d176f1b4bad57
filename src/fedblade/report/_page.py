"""Put the page together: header, sections, style sheet and script in one file."""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from fedblade.charts import Chart, accuracy_chart, loss_chart, section_answer
from fedblade.charts.palette import COLOURS, COLOURS_ON_DARK, GRID, INK, MUTED
from fedblade.core.words import listing
from fedblade.report._blocks import Block, Paragraph, Section, trusted, wide_picture
from fedblade.report._contributors import contributors_section
from fedblade.report._explained import QUESTIONS, cost, other_section
from fedblade.report._header import default_heading, facts, finding, notices
from fedblade.report._participation import participation_section
from fedblade.report._splits import splits
from fedblade.report._svg import swatch, xml_safe
from fedblade.report._tables import configuration, results, runs, versions_section
from fedblade.results import ComparisonRow, Group

_NOT_EVALUATED = "No round has been evaluated yet, so there is nothing to draw."


def page(groups: Sequence[Group], rows: Sequence[ComparisonRow], title: str | None, note: str = "") -> str:
    """The complete HTML document; `note` stands above the results."""
    explained = [question.section(groups) for question in QUESTIONS]
    parts: list[Section | Block] = [
        *([Paragraph(note)] if note else []),
        results(rows),
        _over_rounds("accuracy", accuracy_chart(groups), tall=400),
        _over_rounds("loss", loss_chart(groups), tall=300),
        splits(groups),
        *(section for section in explained if section is not None),
        *other_section(groups),
        cost(groups),
        *_not_measured(groups, explained),
        runs(groups),
        *participation_section(groups),
        *contributors_section(groups),
        configuration(groups),
        versions_section(groups),
    ]
    sections = [part for part in parts if isinstance(part, Section)]
    answers = [(section, answer) for section in sections if (answer := section_answer(groups, section.name))]
    answered = {section.name for section, _ in answers}
    return (
        _templates()
        .get_template("page.html")
        .render(
            heading=title or default_heading(groups),
            finding=finding(rows),
            facts=facts(groups),
            notices=notices(groups),
            answers=answers,
            links=[section for section in sections if section.name not in answered],
            labels=[group.label for group in groups],
            parts=parts,
        )
    )


@functools.cache
def _templates() -> jinja2.Environment:
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
        "script": trusted(_packaged("page.js")),
    }
    return environment


def _as_json(payload: Mapping[str, Any] | Sequence[Any]) -> Markup:
    """The payload as JSON for a block that a browser does not run.

    Only `<` can end such a block early, so it is written as an escape that JSON reads back.
    """
    return Markup(json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))  # noqa: S704


def _packaged(name: str) -> str:
    return (files("fedblade.report") / name).read_text(encoding="utf-8")


def _over_rounds(name: str, chart: Chart | None, *, tall: float) -> Section:
    block = Paragraph(_NOT_EVALUATED) if chart is None else wide_picture(chart, tall=tall)
    return Section(name, f"Test {name} over rounds", [block])


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
