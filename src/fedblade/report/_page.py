"""Put the page together: header, sections, style sheet and script in one file."""

import importlib.resources
from collections.abc import Sequence

from fedblade.report import _collapse, _drift, _geometry, _sections, _served
from fedblade.report._charts import accuracy_figure, loss_figure
from fedblade.report._collapse import collapse
from fedblade.report._contents import contents
from fedblade.report._cost import cost
from fedblade.report._data import embed
from fedblade.report._drift import drift
from fedblade.report._geometry import geometry
from fedblade.report._header import default_heading, header
from fedblade.report._html import figure, name_cell, paragraph, section
from fedblade.report._served import served
from fedblade.report._splits import splits
from fedblade.report._svg import escape
from fedblade.results import ComparisonRow, Group, listing

# Nothing may be loaded from anywhere, whatever a run's files contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_EXPLAINED = (
    (collapse, "Do the features collapse?", _collapse.METRICS),
    (geometry, "Do classes separate as they should?", _geometry.METRICS),
    (drift, "Do clients pull in different directions?", _drift.METRICS),
    (served, "Who is served?", _served.METRICS),
)
_NOT_EVALUATED = "No round has been evaluated yet, so there is nothing to draw."


def page(groups: Sequence[Group], rows: Sequence[ComparisonRow], title: str | None, note: str = "") -> str:
    """The complete HTML document; `note` stands above the results."""
    heading = title or default_heading(groups)
    explained = [draw(groups) for draw, _, _ in _EXPLAINED]
    main = "".join(
        [
            paragraph(note) if note else "",
            _sections.results(rows),
            _curves(groups),
            splits(groups),
            *explained,
            cost(groups),
            _not_measured(groups, explained),
            _sections.runs(groups),
            _sections.configuration(groups),
            _sections.versions(groups),
        ]
    )
    labels = embed([group.label for group in groups], name="methods")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(heading)} · fedblade report</title>\n<style>\n{_packaged('style.css')}</style>\n</head>\n"
        f"<body>\n{header(heading, groups, rows)}{contents(groups, main)}{_bar(groups)}<main>{main}</main>\n"
        f"{labels}<script>\n{_packaged('page.js')}</script>\n</body>\n</html>\n"
    )


def _packaged(name: str) -> str:
    return (importlib.resources.files("fedblade.report") / name).read_text(encoding="utf-8")


def _bar(groups: Sequence[Group]) -> str:
    """The legend of all charts, which stays in view; the script makes each entry a switch."""
    chips = "".join(f'<span class="chip" data-chip="{i}">{name_cell(i, g.label)}</span>' for i, g in enumerate(groups))
    return f'<div class="bar" role="group" aria-label="Methods in the charts">{chips}</div>'


def _not_measured(groups: Sequence[Group], explained: Sequence[str]) -> str:
    """What the runs did not record, and how to have it next time beside what they did."""
    absent = [each[1:] for each, drawn in zip(_EXPLAINED, explained, strict=True) if not drawn]
    if not absent:
        return ""
    questions = listing([f"“{question}”" for question, _ in absent])
    asked = _distinct_metrics(groups)
    names = ",".join(dict.fromkeys((*asked, *(name for _, given in absent for name in given))))
    said = f"These runs have not recorded what answers {questions} To have it in the next report as well, add "
    return f'<p class="note absent">{escape(said)}<code>--set metrics={escape(names)}</code> to the command.</p>'


def _distinct_metrics(groups: Sequence[Group]) -> list[str]:
    """The metrics that the runs were asked for."""
    tables = [run.config.get("evaluation") for group in groups for run in group.runs]
    stored = [table.get("metrics") for table in tables if isinstance(table, dict)]
    return list(dict.fromkeys(str(name) for names in stored if isinstance(names, list) for name in names))


def _curves(groups: Sequence[Group]) -> str:
    accuracy, loss = accuracy_figure(groups), loss_figure(groups)
    return section(
        "accuracy", "Test accuracy over rounds", figure(accuracy) if accuracy else paragraph(_NOT_EVALUATED)
    ) + section("loss", "Test loss over rounds", figure(loss) if loss else paragraph(_NOT_EVALUATED))
