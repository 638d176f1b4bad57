"""What a notebook shows of runs: tables and the curve of the accuracy, without scripts, styles or links."""

import base64
from collections.abc import Sequence

from markupsafe import Markup

from fedblade.charts import accuracy_chart
from fedblade.report._lines import draw_lines
from fedblade.report._page import templates
from fedblade.results import Group, Table

_SIZE = (640.0, 300.0)


def notebook_html(title: str, tables: Sequence[Table], groups: Sequence[Group]) -> str:
    """The HTML of a title, tables and the curve of the accuracy. The curve is a picture inside the HTML."""
    chart = accuracy_chart(groups)
    drawn = None if chart is None else draw_lines(chart, _SIZE, name="curve", keyed=True, alone=True)
    return (
        templates()
        .get_template("notebook.html")
        .render(
            title=title,
            tables=tables,
            about="" if chart is None else f"{chart.title}. {chart.about}",
            curve=None if drawn is None else Markup("data:image/svg+xml;base64,") + _encoded(drawn),
            reading="" if chart is None else chart.reading,
        )
    )


def _encoded(drawing: str) -> str:
    return base64.b64encode(drawing.encode("utf-8", errors="replace")).decode("ascii")
