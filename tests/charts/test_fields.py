"""A number that a metric describes reaches the page and the figures, and the library's numbers have their place."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from fedblade.charts import other_charts, other_fields
from fedblade.charts._sections import _SECTIONS
from fedblade.figures import write_figures
from fedblade.report import build_report
from fedblade.results import built_in_fields, group_runs, read_runs
from support.report_runs import diagnose

MARGIN = {
    "label": "Mean margin",
    "unit": "logits",
    "reading": "Wide margins mean sure answers.",
    "subject": "clients",
    "number_format": ".1f",
}


def measure(run, name: str, values: list[float], description: dict | None) -> None:
    """Add a number of a user's metric to the rounds of a run, with or without its description."""
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    lines = [line | {name: value} for line, value in zip(lines, values, strict=True)]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stored = {field.name: field.description() for field in built_in_fields().values()}
    (run / "metrics.json").write_text(json.dumps(stored | ({name: description} if description else {})))


@pytest.fixture
def groups(tmp_path):
    return lambda: group_runs(read_runs([tmp_path / "runs"]))


def test_a_users_metric_has_a_chart_on_the_page(make_run, tmp_path):
    for method, values in (("fedavg", [1.0, 2.5]), ("fedblade", [2.0, 4.0])):
        measure(make_run(method, accuracies=[50.0, 60.0]), "margin", values, MARGIN)

    html = build_report([tmp_path / "runs"], tmp_path / "report.html").read_text()

    [section] = re.findall(r'<section id="other".*?</section>', html, re.DOTALL)
    assert "What else was measured?" in section
    assert '<p class="figure-title">Mean margin</p>' in section
    assert ">logits</text>" in section
    assert "Wide margins mean sure answers." in section
    assert "After round 2: fedavg 2.5 and fedblade 4.0." in section
    assert '<a href="#other">What else was measured?</a>' in html


def test_a_users_metric_has_a_figure(make_run, tmp_path):
    measure(make_run(accuracies=[50.0, 60.0]), "../Mean margin!", [1.0, 2.5], MARGIN)

    written = write_figures([tmp_path / "runs"], tmp_path / "figures", formats=["svg"], columns="1")

    [figure] = [path for path in written if path.name.startswith("metric-")]
    assert figure.name == "metric-mean-margin-1col.svg"
    texts = {element.text for element in ET.parse(figure).iter("{http://www.w3.org/2000/svg}text")}
    assert {"round", "Mean margin (logits)"} <= texts


def test_fields_that_a_section_shows_are_not_shown_again(make_run, groups):
    run = make_run()
    diagnose(run)
    measure(run, "num_prototypes", [1.0] * 20, None)

    assert other_fields(groups()) == []


def test_names_that_no_page_could_use_stay_out_of_it(make_run, groups, tmp_path):
    measure(make_run(accuracies=[50.0]), '"><script>alert(1)</script>', [1.0], MARGIN | {"label": "<b>", "unit": ""})

    [chart] = other_charts(groups())
    html = build_report([tmp_path / "runs"], tmp_path / "report.html").read_text()

    assert chart.name == "metric-1"
    assert chart.panel.y.label == "<b>"
    assert "<script>alert" not in html
    assert "<b>" not in html


@pytest.mark.parametrize(("last", "scale"), [(5.0e6, "log"), (2.0, "linear")])
def test_values_of_many_sizes_are_drawn_on_a_logarithmic_scale(make_run, groups, last, scale):
    measure(make_run(accuracies=[50.0, 60.0]), "margin", [0.1, last], MARGIN)

    [chart] = other_charts(groups())

    assert chart.panel.y.scale == scale


def test_the_table_of_sections_has_every_number_of_the_metrics_once():
    from fedblade.core.registry import metrics

    fields = [(field.name, entry.name) for entry in metrics.entries() for field in entry.make().fields]
    written = [pair for pair in fields if pair[0] in built_in_fields()]
    placed = [
        (number, metric)
        for by_metric in _SECTIONS.values()
        for metric, numbers in by_metric.items()
        for number in numbers
    ]

    assert sorted(placed) == sorted(written)
