"""What a notebook shows of runs: tables and the curve of the accuracy, without scripts, style sheets or links."""

import base64
from collections.abc import Sequence

from fedblade.charts import accuracy_chart
from fedblade.report._lines import draw_lines
from fedblade.report._page import templates
from fedblade.report._selection import select
from fedblade.results import Group, Table, compare, suggest_threshold

_SIZE = (640.0, 300.0)


def notebook_html(title: str, tables: Sequence[Table], groups: Sequence[Group]) -> str:
    """The HTML of a title, tables and the curve of the accuracy with its legend.

    Drawings are images inside the HTML, so that no name and no style of one output meets those of another.
    """
    shown = select(groups, compare(groups, suggest_threshold(groups)))
    charts = shown.of([accuracy_chart(groups)])
    return (
        templates()
        .get_template("notebook.html")
        .render(
            title=title,
            tables=tables,
            charts=[
                {
                    "address": _address(draw_lines(chart, _SIZE, name="curve", alone=True)),
                    "about": f"{chart.title}. {chart.about}",
                    "reading": " ".join(filter(None, (chart.reading, shown.sentence))),
                }
                for chart in charts
            ],
            legend=[(name, _address(swatch)) for name, swatch in shown.legend] if len(groups) > 1 else [],
        )
    )


def _address(drawing: str) -> str:
    """A drawing as the address of an image."""
    namespace = "http://www.w3.org/2000/svg"
    alone = drawing if namespace in drawing else str(drawing).replace("<svg ", f'<svg xmlns="{namespace}" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(alone.encode('utf-8', errors='replace')).decode('ascii')}"
