"""A page of many groups: the best few in the charts, a band of all, everything in the tables, and few bytes."""

import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from fedblade.charts import accuracy_chart, crowd_name, with_crowd
from fedblade.report import build_report
from fedblade.report._lines import draw_lines
from fedblade.report._selection import select
from fedblade.results import compare, group_runs, read_runs
from support.report_runs import diagnose

GROUPS = 14


@pytest.fixture
def study(make_run, tmp_path) -> Path:
    """Runs with another knob and another accuracy each; the last ones are the best."""
    for index in range(GROUPS):
        run = make_run("fedprox", accuracies=[10.0, 20.0 + 5 * index], knobs=f"mu = 0.{index:02d}")
        diagnose(run, quality=index / GROUPS, dim=8)
    return tmp_path / "runs"


@pytest.fixture
def html(study, tmp_path) -> str:
    return build_report([study], tmp_path / "report.html").read_text(encoding="utf-8")


def groups_and_rows(study):
    groups = group_runs(read_runs([study]))
    return groups, compare(groups, 50.0)


def test_up_to_twelve_groups_are_all_drawn(study):
    groups, rows = groups_and_rows(study)

    few = select(groups[:12], rows[:12])

    assert (few.drawn, few.many, few.sentence) == (tuple(range(12)), False, "")
    assert [name for name, _ in few.legend] == [group.label for group in groups[:12]]


def test_of_many_groups_the_best_are_drawn_best_first(study):
    groups, rows = groups_and_rows(study)

    shown = select(groups, rows)

    means = [rows[index].ranked_mean for index in shown.drawn]
    assert means == sorted((row.ranked_mean for row in rows), reverse=True)[: len(means)]
    assert [name for name, _ in shown.legend] == [*(groups[at].label for at in shown.drawn), crowd_name(GROUPS)]


def test_the_band_has_the_middle_of_all_groups(study):
    groups, rows = groups_and_rows(study)
    drawn = select(groups, rows).drawn

    chart = with_crowd(accuracy_chart(groups), drawn)

    band, *lines = chart.panel.lines
    ends = [row.final_mean for row in rows]
    assert band.crowd
    assert [line.crowd for line in lines] == [False] * len(drawn)
    assert band.series.x == (1, 2)
    assert band.series.y[-1] == pytest.approx(statistics.median(ends))
    assert (band.series.low[-1], band.series.high[-1]) == pytest.approx(np.quantile(ends, [0.1, 0.9]))
    assert {line.index: line.series.y[-1] for line in lines} == {
        place: rows[at].final_mean for place, at in enumerate(drawn)
    }


def test_the_page_has_one_legend_and_no_more_lines_than_it_names(html):
    named = re.findall(r'data-chip="(\d+)"', html)
    groups = {int(at) for at in re.findall(r'class="series" data-g="(\d+)"', html)}

    assert len(named) == 8
    assert groups == set(range(8))
    assert f"<span>{crowd_name(GROUPS)}</span>" in html
    assert "Charts draw the 7 with the highest mean accuracy." in html
    assert 'class="key"' not in html


def test_the_tables_list_every_group_and_the_best_one_first(html):
    body = re.search(r"<caption>Comparison over seeds</caption>(.*?)</table>", html, re.DOTALL)
    assert body is not None
    labels = re.findall(r'<th scope="row">.*?(fedprox \(mu=[\d.]+\))', body[1])

    assert len(labels) == GROUPS
    assert labels[0] == "fedprox (mu=0.13)"
    costs = re.search(r"<caption>Cost</caption>(.*?)</table>", html, re.DOTALL)
    assert costs is not None
    assert costs[1].count('<th scope="row">') == GROUPS


def test_settings_of_many_groups_have_a_row_for_each(html):
    body = re.search(r"<caption>Differing settings</caption>(.*?)</table>", html, re.DOTALL)
    assert body is not None

    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', body[1]) == ["method", "method.mu"]
    assert body[1].count('<th scope="row">') == GROUPS


def test_a_group_more_takes_a_hundredth_of_the_page(study, make_run, tmp_path):
    small = build_report([study], tmp_path / "small.html").stat().st_size
    for index in range(GROUPS):
        diagnose(make_run("fedprox", accuracies=[10.0, 9.0], knobs=f"mu = 1.{index:02d}"), quality=0.1, dim=8)

    large = build_report([study], tmp_path / "large.html").stat().st_size

    assert 0 < (large - small) / GROUPS < small / 100


@pytest.mark.parametrize(("methods", "bands"), [(4, 4), (5, 0)])
def test_bands_of_seeds_are_drawn_for_few_lines_only(make_run, tmp_path, methods, bands):
    for index in range(methods):
        for seed in (1, 2):
            make_run("fedprox", seed, accuracies=[10.0, 50.0 + 10 * index + seed], knobs=f"mu = 0.{index}")
    groups = group_runs(read_runs([tmp_path / "runs"]))

    (chart,) = select(groups, compare(groups, 50.0)).of([accuracy_chart(groups)])

    assert draw_lines(chart, (640.0, 300.0), name="chart").count('class="band') == bands
    assert ("bands reach from" in chart.reading) == (bands > 0)


def test_without_bands_the_axis_fits_the_lines(make_run, tmp_path):
    for index in range(5):
        for seed, accuracy in ((1, 5.0), (2, 45.0)):
            make_run("fedprox", seed, accuracies=[accuracy], knobs=f"mu = 0.{index}")
    groups = group_runs(read_runs([tmp_path / "runs"]))

    (chart,) = select(groups, compare(groups, 50.0)).of([accuracy_chart(groups)])

    drawn = draw_lines(chart, (640.0, 300.0), name="chart")
    low, high = (float(number) for number in re.search(r'data-y="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)', drawn).groups())
    assert 5.0 < low < 25.0 < high < 45.0
