"""Pictures: well-formed, complete, to scale."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from fedblade.charts import Axis, Chart, Line, LinePanel, Series
from fedblade.charts.palette import COLOURS
from fedblade.core.errors import Misconfigured
from fedblade.report import label_map_svg
from fedblade.report._axes import linear_axis, log_axis
from fedblade.report._labelmap import bin_clients
from fedblade.report._lines import draw_lines, script_data, thin
from fedblade.report._svg import DASHES, line_style, path, stride

NUMBER = re.compile(r"-?[\d.]+")


def nodes(root: ET.Element, name: str) -> list[ET.Element]:
    """Elements of this name; pictures of their own have a namespace, those inside a page have none."""
    return root.findall(f".//{{*}}{name}")


def texts(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in nodes(root, "text")]


def chart_of(*series: Series | None, parts: tuple[str, ...] = (), index: int | None = None, **extra: object) -> Chart:
    """A chart of these series, each a line of its own or, with an index, parts of that one group."""
    lines = [
        Line(at if index is None else index, values, parts[at] if parts else "")
        for at, values in enumerate(series)
        if values is not None
    ]
    names = tuple(f"line {at}" for at in range(len(series)))
    y = Axis("loss", **extra)  # type: ignore[arg-type]
    return Chart("x", "t", "d", LinePanel(Axis("round", whole=True), y, names, tuple(lines)))


def draw(*series: Series | None, width: float = 940, most: int = 600, **extra: object) -> ET.Element:
    return ET.fromstring(draw_lines(chart_of(*series, **extra), (width, 300), name="x", most=most))  # type: ignore[arg-type]


def points(data: str) -> list[tuple[float, float]]:
    """The places a path goes through, from its first place and the steps after it."""
    assert re.fullmatch(r"M[-\d. ]+(l[-\d. ]+)?z?", data)
    numbers = np.array([float(found) for found in NUMBER.findall(data)]).reshape(-1, 2)
    return [(float(x), float(y)) for x, y in numbers.cumsum(0)]


def flat(*values: float) -> Series:
    return Series(tuple(range(1, len(values) + 1)), values, values, values)


def test_a_picture_says_what_it_is():
    for root in (draw(flat(1.0, 2.0)), ET.fromstring(label_map_svg([[100, 25], [0, 4]]))):
        assert root.get("role") == "img"
        ids = {node.get("id"): node for node in root.iter() if node.get("id")}
        told = [ids[i].tag.rpartition("}")[2] for i in root.get("aria-labelledby", "").split()]
        assert told == ["title", "desc"]


def test_a_picture_of_its_own_has_a_namespace_and_a_paper():
    root = ET.fromstring(label_map_svg([[100, 25], [0, 4]]))

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert next(iter(nodes(root, "rect"))).get("fill") == "#ffffff"


def test_axes_have_titles_and_the_legend_is_left_to_the_page():
    written = set(texts(draw(flat(1.0, 2.0))))

    assert {"round", "loss"} <= written
    assert "line 0" not in written


def test_bubble_areas_are_proportional_to_counts():
    root = ET.fromstring(label_map_svg([[100, 25], [0, 4]]))
    (cells,) = (group for group in nodes(root, "g") if group.get("class") == "cells")
    radii = [float(circle.get("r", "nan")) for circle in cells]

    assert len(radii) == 3
    assert radii[1] / radii[0] == pytest.approx(0.5, abs=0.01)
    assert radii[2] / radii[0] == pytest.approx(0.2, abs=0.01)


def test_label_map_takes_arrays_and_shows_escaped_names_and_title():
    svg = label_map_svg(np.eye(3, dtype=int) * 7, class_names=["<a>", "b & c", "d"], title="Split <1>")

    assert {"<a>", "b & c", "d", "Split <1>", "client", "class"} <= set(texts(ET.fromstring(svg)))


def test_many_clients_are_shaded_cells_of_sensible_size():
    counts = np.random.default_rng(0).integers(0, 9, size=(300, 100))
    svg = label_map_svg(counts)
    (shades,) = (node for node in nodes(ET.fromstring(svg), "g") if node.get("class") == "shades")
    level = np.zeros((100, 300))
    for node in shades:
        for x, y, run in re.findall(r"M(\d+) (\d+)\.5h(\d+)", node.get("d", "")):
            row = level[int(y), int(x) : int(x) + int(run)]
            assert not row.any()
            row[:] = float(node.get("stroke-opacity", "nan"))

    assert np.abs(level - np.ceil(6 * np.sqrt(counts.T / 8) - 1e-9) / 6).max() < 0.01
    assert len(svg) < 300_000


def test_a_label_map_without_samples_is_drawn():
    assert "client" in texts(ET.fromstring(label_map_svg([[0, 0], [0, 0]])))


@pytest.mark.parametrize("counts", [[], [[]], [[1, 2], [3]], [[math.nan]], [[-1]], 3, [["a"]]])
def test_a_table_that_is_no_table_of_counts_is_refused(counts):
    with pytest.raises(Misconfigured, match="is not a table of counts"):
        label_map_svg(counts)


def test_a_wrong_number_of_class_names_is_refused():
    with pytest.raises(Misconfigured, match="2 class names were given for 3 classes"):
        label_map_svg([[1, 2, 3]], class_names=["a", "b"])


def test_binning_averages_like_clients_and_keeps_the_skew():
    counts = [[10.0, 0.0] if k % 2 else [0.0, 10.0] for k in range(8)]

    columns, size = bin_clients(counts, 4)

    assert size == 2
    assert columns == [[10.0, 0.0]] * 2 + [[0.0, 10.0]] * 2
    assert bin_clients(counts, 8) == (counts, 1)


def test_a_single_evaluation_is_visible_as_a_dot():
    root = draw(flat(50.0))

    assert len(list(nodes(root, "circle"))) == 1


def test_a_missing_curve_keeps_its_place_in_the_palette():
    root = draw(None, flat(1.0, 2.0))
    (line,) = (node for node in nodes(root, "path") if (node.get("class") or "").startswith("line"))

    assert line.get("stroke") == COLOURS[1]


def test_an_axis_says_that_its_scale_is_logarithmic():
    assert "loss (log scale)" in texts(draw(flat(0.1, 5.0e6), scale="log"))
    assert "loss" in texts(draw(flat(0.1, 2.0)))


def test_every_coordinate_is_finite_and_inside_the_picture():
    root = draw(flat(0.0, 0.0, 0.0), Series((1, 2), (50.0, 101.0), (40.0, 90.0), (60.0, 120.0)), bounds=(0.0, 100.0))
    width, height = (float(v) for v in (root.get("viewBox") or "").split()[2:])
    for node in nodes(root, "path"):
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points(node.get("d", "")))


@pytest.mark.parametrize("closed", [False, True])
def test_paths_keep_to_their_points_however_many_there_are(closed):
    given = np.random.default_rng(0).uniform(0, 300, size=(500, 2)) * [3, 1]

    data = path(given.tolist(), closed=closed)

    assert np.abs(np.array(points(data)) - given).max() <= 0.05 + 1e-6
    assert data.endswith("z") == closed
    assert points(path([(1.25, 300.0)])) == [(1.2, 300.0)]


def test_long_curves_are_thinned_and_keep_their_ends():
    long = flat(*(float(v) for v in range(5000)))

    short = thin(long)

    assert len(short.x) == 600
    assert (short.x[0], short.x[-1]) == (1, 5000)
    assert short.y[-1] == 4999.0


def test_small_charts_have_fewer_points():
    long = flat(*(float(v) for v in range(5000)))

    root = draw(long, most=100)

    (line,) = (node for node in nodes(root, "path") if (node.get("class") or "").startswith("line"))
    assert len(points(line.get("d", ""))) == 100


def test_the_lines_of_one_group_share_its_colour_and_differ_in_dashes():
    root = draw(flat(1.0, 2.0), flat(2.0, 3.0), index=3, parts=("averaged", "one client"))

    lines = [node for node in nodes(root, "path") if (node.get("class") or "").startswith("line")]
    assert [node.get("stroke") for node in lines] == [COLOURS[3]] * 2
    assert lines[0].get("stroke-dasharray") is None
    assert lines[1].get("stroke-dasharray") is not None
    assert {node.get("data-g") for node in nodes(root, "g") if node.get("data-line")} == {"3"}


def test_the_script_gets_every_point_and_the_places_of_lines_that_have_others():
    chart = chart_of(flat(1.23456, 2.0), None, Series((2,), *[(5.0,)] * 3))

    assert script_data(chart) == {
        "name": "round",
        "of": "loss",
        "x": [1, 2],
        "lines": [{"g": 0, "y": [1.235, 2]}, {"g": 2, "y": [5], "x": [2]}],
    }


def test_axes_tell_the_script_what_they_do():
    root = draw(flat(0.02, 30.0), scale="log")
    start, end, low, high, log = map(float, root.get("data-y", "").split())

    (line,) = (node for node in root.iter("path") if (node.get("class") or "").startswith("line"))
    drawn = [height for _, height in points(line.get("d", ""))]
    shares = [math.log(v / low) / math.log(high / low) for v in (0.02, 30.0)]
    assert log == 1
    assert drawn == pytest.approx([start + share * (end - start) for share in shares], abs=0.1)


def test_powers_of_ten_are_written_as_such_where_there_are_many_zeros():
    assert [log_axis(1e-6, 1, start=0, end=1).print_tick(10.0**e) for e in (-6, 0)] == ["10⁻⁶", "10⁰"]
    assert log_axis(0.01, 100, start=0, end=1).print_tick(0.01) == "0.01"


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 100.0), (12.3, 97.1), (0.011, 0.017), (-3.0, 4.0), (5.0, 5.0), (0.0, 0.0)]
)
def test_axes_cover_the_data_with_a_few_round_ticks(low, high):
    axis = linear_axis(low, high, start=0, end=100)

    assert axis.low <= low <= high <= axis.high
    assert 3 <= len(axis.ticks) <= 8
    steps = np.diff(axis.ticks)
    assert steps == pytest.approx(np.full(len(steps), steps[0]))
    mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5, 10)) < 1e-6
    assert axis.at(axis.low) == pytest.approx(0)
    assert axis.at(axis.high) == pytest.approx(100)


def test_a_log_axis_places_decades_evenly():
    axis = log_axis(0.02, 30.0, start=0, end=40)

    assert axis.ticks == pytest.approx((0.01, 0.1, 1, 10, 100))
    assert [axis.at(tick) for tick in axis.ticks] == pytest.approx([0, 10, 20, 30, 40])


@pytest.mark.parametrize(("low", "high"), [(2e-9, 30.0), (3e-5, 140.0), (1.0, 1e7)])
def test_a_long_log_axis_ends_with_the_data_and_skips_powers(low, high):
    axis = log_axis(low, high, start=0, end=40)

    assert (axis.low, axis.high) == (low, high)
    assert 3 <= len(axis.ticks) <= 7
    assert all(low <= tick <= high for tick in axis.ticks)
    assert len({round(b / a) for a, b in itertools.pairwise(axis.ticks)}) == 1


def test_rounds_get_whole_ticks():
    assert linear_axis(0, 3, start=0, end=9, ticks=8, whole=True, snap=False).ticks == (0, 1, 2, 3)


@pytest.mark.parametrize(("count", "need", "expected"), [(20, 0.4, 1), (100, 3.2, 5), (100, 11, 20), (7, 10**9, 7)])
def test_labels_are_thinned_to_round_steps(count, need, expected):
    assert stride(count, need) == expected


def test_colour_and_dash_tell_35_lines_apart():
    styles = {(line_style(i)["stroke"], line_style(i)["stroke_dasharray"]) for i in range(35)}

    assert len(styles) == len(COLOURS) * len(DASHES) == 35
