"""Files of figures: formats, sizes, text that stays text, the same bytes every time, nothing cut off."""

import math
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from fedblade.charts import Axis, Line, LinePanel, Matrix, MatrixPanel, Series
from fedblade.charts.palette import COLOURS
from fedblade.core.errors import Misconfigured
from fedblade.figures import write_figures
from fedblade.figures._draw import draw
from fedblade.figures._panels import build_panels
from fedblade.figures._specs import general_figures, paper_figure
from fedblade.figures._style import ONE_COLUMN, TWO_COLUMNS
from fedblade.results import group_runs, read_runs

SVG = "{http://www.w3.org/2000/svg}"
CROWDED = ("alignment", "class-cosines", "confusion", "fairness", "label-map", "nc2-variants")


NAMES = ("a", "b", *(f"method {i}" for i in range(12)))


def line(name: str, values: tuple[float, ...], part: str = "", spread: float = 0.0) -> Line:
    low, high = (tuple(v + sign * spread for v in values) for sign in (-1, 1))
    return Line(NAMES.index(name), Series(tuple(map(float, range(1, len(values) + 1))), values, low, high), part)


def panel(*lines: Line, log: str = "", shared: str = "", diagonal: bool = False, floor: float = -math.inf) -> LinePanel:
    """A panel in which no line has a name but those that are drawn."""
    drawn = sorted({line.index for line in lines})
    return LinePanel(
        x=Axis("round", scale="log" if "x" in log else "linear", whole=True),
        y=Axis("test accuracy (%)", scale="log" if "y" in log else "linear", floor=floor),
        names=tuple(NAMES[index] for index in drawn),
        lines=tuple(replace(line, index=drawn.index(line.index)) for line in lines),
        shared=shared,
        diagonal=diagonal,
    )


def matrix(title: str, labels: tuple[str, str], shade: str, values: Matrix, kind: str = "cosines") -> MatrixPanel:
    across, down = map(Axis, labels)
    return MatrixPanel(title, across, down, Axis(shade), values, kind)


def pixels(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


@pytest.mark.thorough
def test_every_figure_of_the_report_is_written(make_run, tmp_path):
    for method in ("fedavg", "fedblade"):
        make_run(method)
    written = write_figures([tmp_path / "runs"], tmp_path / "figures", formats=["svg"], columns="1")
    assert [path.name for path in written] == [f"{part.name}-1col.svg" for part in general_figures()]
    assert set(written) == set((tmp_path / "figures").iterdir())
    texts = {path.name: {element.text for element in ET.parse(path).iter(f"{SVG}text")} for path in written}
    assert {"fedavg", "fedblade", "round", "test accuracy (%)"} <= texts["accuracy-1col.svg"]
    assert {"fedavg", "fedblade", "class", "cosine of class", "means"} <= texts["class-cosines-1col.svg"]
    assert {"fedavg", "fedblade", "answer", "true class"} <= texts["confusion-1col.svg"]
    assert all(texts.values())


@pytest.mark.parametrize("figure", ["fe-f1", "fe-f6"])
def test_figures_come_in_every_format_and_width(make_run, tmp_path, figure):
    for width in (10, 20):
        make_run("fedetf", method={"proj_dim": width})
    written = write_figures([tmp_path / "runs"], tmp_path / "figures", paper=figure)
    names = [f"{figure}{part}-{width}col.{kind}" for part in "ab" for width in "12" for kind in ("svg", "pdf", "png")]
    assert [path.name for path in written] == names
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert pixels(content)[0] == round(300 * (ONE_COLUMN if "1col" in path.name else TWO_COLUMNS))
        elif path.suffix == ".pdf":
            assert content.startswith(b"%PDF-")
            assert b"/FontFile2" in content
            assert b"/Type3" not in content
            assert b"CreationDate" not in content
        else:
            assert list(ET.fromstring(content).iter(f"{SVG}text"))
            assert b"dc:date" not in content


def test_pictures_are_as_large_as_the_figure(tmp_path):
    figure = draw([panel(line("a", (1.0, 2.0)))], ONE_COLUMN)
    figure.savefig(tmp_path / "a.png")
    width, height = figure.get_size_inches()
    assert width == ONE_COLUMN
    assert pixels((tmp_path / "a.png").read_bytes()) == (round(width * 300), round(height * 300))


def test_the_same_runs_give_the_same_bytes(make_run, tmp_path):
    for seed in (1, 2):
        make_run("fedavg", seed)
    for folder in ("one", "two"):
        write_figures([tmp_path / "runs"], tmp_path / folder, columns="1", paper="fe-f1")
    one, two = (sorted((tmp_path / folder).iterdir()) for folder in ("one", "two"))
    assert [path.name for path in one] == [
        f"fe-f1{part}-1col.{kind}" for part in "ab" for kind in ("pdf", "png", "svg")
    ]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_lines_are_drawn_where_the_numbers_are():
    figure = draw([panel(line("a", (5.0, 7.0, 6.0), spread=1.0), line("b", (1.0, 2.0, 4.0)))], TWO_COLUMNS)
    [ax] = figure.axes
    assert [list(drawn.get_ydata()) for drawn in ax.lines] == [[5.0, 7.0, 6.0], [1.0, 2.0, 4.0]]
    assert list(ax.lines[0].get_xdata()) == [1.0, 2.0, 3.0]
    [band] = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (4.0, 8.0)


def test_no_two_lines_of_a_figure_look_alike_even_in_grey():
    names = [f"method {i}" for i in range(12)]
    lines = [line(name, (1.0, 2.0)) for name in names]
    [ax] = draw([panel(*lines)], TWO_COLUMNS).axes
    assert len({(drawn.get_linestyle(), drawn.get_marker(), drawn.get_color()) for drawn in ax.lines}) == 12
    assert len({(str(drawn._dash_pattern), drawn.get_marker()) for drawn in ax.lines}) == 12


@pytest.mark.parametrize(("count", "rows"), [(2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])])
def test_panels_fill_the_figure_and_no_place_stays_empty(count, rows):
    figure = draw([panel(line("a", (1.0, 2.0 + at))) for at in range(count)], ONE_COLUMN)
    bottoms = sorted({round(ax.get_position().y0, 2) for ax in figure.axes}, reverse=True)
    assert [sum(round(ax.get_position().y0, 2) == y for ax in figure.axes) for y in bottoms] == rows
    for y in bottoms:
        row = [ax.get_position() for ax in figure.axes if round(ax.get_position().y0, 2) == y]
        assert max(box.x1 for box in row) > 0.95
    assert all(ax.get_xlabel() == "round" for ax in figure.axes[-2:])


def test_a_legend_says_what_bands_are():
    with_band = draw([panel(line("a", (5.0, 7.0), spread=1.0), line("b", (1.0, 2.0)))], TWO_COLUMNS)
    alone = draw([panel(line("a", (5.0, 7.0), spread=1.0))], TWO_COLUMNS)
    named = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in (with_band, alone)]
    assert named == [["a", "b", "lowest to highest seed"], ["lowest to highest seed"]]


def test_fields_are_told_apart_by_dashes_and_runs_by_colour():
    lines = [line(name, (1.0, 2.0), part) for name in "ab" for part in ("observed", "unobserved")]
    figure = draw([panel(*lines)], ONE_COLUMN)
    [ax] = figure.axes
    colours = [drawn.get_color() for drawn in ax.lines]
    dashes = [str(drawn._dash_pattern) for drawn in ax.lines]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert dashes[0] == dashes[2] != dashes[1] == dashes[3]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "observed", "unobserved"]


def test_one_line_needs_no_legend():
    assert draw([panel(line("a", (1.0, 2.0)))], ONE_COLUMN).legends == []


def test_a_level_crosses_the_panel():
    level = Line(NAMES.index("b"), Series((), (1.5,), (1.5,), (1.5,)))
    [ax] = draw([panel(line("a", (1.0, 2.0)), level, log="x")], ONE_COLUMN).axes
    assert list(ax.lines[1].get_ydata()) == [1.5, 1.5]
    assert ax.get_xscale() == "log"
    [alone] = draw([panel(level, log="x")], ONE_COLUMN).axes
    assert len(alone.lines) == 1


def test_a_logarithmic_axis_needs_positive_numbers():
    [fine] = draw([panel(line("a", (1.0, 2.0)), log="y")], ONE_COLUMN).axes
    [not_fine] = draw([panel(line("a", (0.0, 2.0)), log="y")], ONE_COLUMN).axes
    assert (fine.get_yscale(), not_fine.get_yscale()) == ("log", "linear")


def test_panels_of_one_scale_have_one_vertical_axis_and_the_others_their_own():
    low, high = panel(line("a", (1.0, 2.0)), shared="x"), panel(line("a", (5.0, 9.0), spread=1.0), shared="x")
    other = panel(line("a", (40.0, 50.0)), shared="y")
    one, two, three = draw([low, high, other], TWO_COLUMNS).axes
    assert one.get_ylim() == two.get_ylim()
    assert one.get_ylim()[0] < 1.0
    assert 10.0 < one.get_ylim()[1] < 40.0 < three.get_ylim()[1]
    named = [any(tick.label1.get_visible() for tick in ax.yaxis.get_major_ticks()) for ax in (one, two, three)]
    assert named == [True, False, True]
    alone, apart = draw([panel(line("a", (1.0, 2.0))), panel(line("a", (5.0, 9.0)))], TWO_COLUMNS).axes
    assert alone.get_ylim() != apart.get_ylim()


def test_eigenvalues_that_vanish_leave_the_panel_and_not_the_others_flat():
    deep = panel(line("a", (2.0, -3.0, -27.0)), shared="x", floor=-27.0)
    whole = panel(line("a", (1.0, -2.0, -8.0)), shared="x", floor=-27.0)
    for ax in draw([deep, whole], TWO_COLUMNS).axes:
        assert -10.0 < ax.get_ylim()[0] < -8.0
    [nothing] = draw([panel(line("a", (-27.0, -27.0)), floor=-27.0)], ONE_COLUMN).axes
    assert nothing.get_ylim()[0] < -27.0


def test_panels_of_one_scale_are_all_logarithmic_or_none_is():
    fine, not_fine = (
        panel(line("a", (1.0, 2.0)), log="y", shared="x"),
        panel(line("a", (0.0, 2.0)), log="y", shared="x"),
    )
    assert [ax.get_yscale() for ax in draw([fine, not_fine], TWO_COLUMNS).axes] == ["linear", "linear"]
    assert [ax.get_yscale() for ax in draw([fine, fine], TWO_COLUMNS).axes] == ["log", "log"]


def test_the_diagonal_lies_where_both_numbers_are_equal_and_needs_no_name():
    figure = draw([panel(line("a", (1.0, 2.0)), line("b", (3.0, 2.0)), diagonal=True)], ONE_COLUMN)
    [ax] = figure.axes
    assert list(ax.lines[0].get_xdata()) == list(ax.lines[0].get_ydata()) == [0.0, 100.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_shares_are_shaded_from_nothing_to_all():
    shares = ((75.0, 25.0), (None, None))
    figure = draw([matrix("", ("answer", "true class"), "share (%)", shares, "confusion")], ONE_COLUMN)
    [image] = figure.axes[0].images
    assert image.get_clim() == (0.0, 100.0)
    assert image.get_array()[0].tolist() == [75.0, 25.0]


def test_shades_are_the_numbers_and_gaps_stay_empty():
    values = ((1.0, None), (-0.5, 1.0))
    figure = draw([matrix("", ("class", "class"), "cosine", values)], ONE_COLUMN)
    [image] = figure.axes[0].images
    drawn = image.get_array()
    assert drawn[0, 0] == 1.0
    assert drawn[1, 0] == -0.5
    assert drawn.mask[0, 1] or math.isnan(drawn[0, 1])
    assert image.get_clim() == (-1.0, 1.0)


def test_label_maps_share_one_scale_of_counts():
    maps = [
        matrix(title, ("client", "class"), "samples", ((0.0, n),), "labels") for title, n in (("a", 5.0), ("b", 80.0))
    ]
    figure = draw(maps, TWO_COLUMNS)
    assert [ax.images[0].get_clim() for ax in figure.axes[:2]] == [(0.0, 80.0)] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("width", [ONE_COLUMN, TWO_COLUMNS])
def test_nothing_is_cut_off_and_the_legend_stands_clear(make_run, tmp_path, width):
    for method in ("fedavg", "fedavg+feddecorr", "fedetf", "fedblade", "feddr_plus"):
        for alpha in (0.05, 0.5):
            make_run(method, partition={"alpha": alpha}, dataset={"name": "tiny_imagenet"})
    groups = group_runs(read_runs([tmp_path / "runs"]))
    parts = [part for part in general_figures() if part.name in CROWDED]
    for part in parts:
        figure = draw(build_panels(part, groups, strict=False), width)
        boxes = [ax.get_tightbbox() for ax in figure.axes if ax.get_visible()]
        for box in (*boxes, *(legend.get_window_extent() for legend in figure.legends)):
            assert box.x0 >= -2, part.name
            assert box.y0 >= -2, part.name
            assert box.x1 <= figure.bbox.x1 + 2, part.name
            assert box.y1 <= figure.bbox.y1 + 2, part.name
        for legend in figure.legends:
            assert legend.get_window_extent().y0 >= max(box.y1 for box in boxes) - 2, part.name


@pytest.mark.parametrize("width", [ONE_COLUMN, TWO_COLUMNS])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_name_of_the_shades_fits_beside_few_panels(width, count):
    values = ((75.0, 25.0), (10.0, 90.0))
    shade = next(part for part in general_figures() if part.name == "confusion").panels[0][0].label
    maps = [matrix(f"method {n}", ("answer", "true class"), shade, values, "confusion") for n in range(count)]
    figure = draw(maps, width)
    for box in (ax.get_tightbbox() for ax in figure.axes if ax.get_visible()):
        assert box.y0 >= -2
        assert box.y1 <= figure.bbox.y1 + 2
        assert box.x1 <= figure.bbox.x1 + 2


def test_settings_of_matplotlib_are_left_as_they_were(make_run, tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    make_run()
    write_figures([tmp_path / "runs"], tmp_path, formats=["svg"], columns="1", paper="fe-f7")
    assert dict(matplotlib.rcParams) == before


def test_the_package_is_light_until_it_draws():
    code = "import sys, fedblade.figures; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_matplotlib_it_says_what_to_install_and_writes_nothing(make_run, tmp_path, monkeypatch):
    make_run()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Misconfigured, match=r"pip install 'fedblade\[figures\]'"):
        write_figures([tmp_path / "runs"], tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"formats": ["svg", "gif"]}, "'gif' is no format of figures. Choose from: svg, pdf, png."),
        ({"formats": []}, "no format was given"),
        ({"columns": "3"}, "'3' is no width of figures. Choose from: 1, 2, both."),
        ({"paper": "fd-f1"}, "there is no figure 'fd-f1'. Choose from: fd-f2, fd-f3,"),
    ],
)
def test_mistakes_are_refused(make_run, tmp_path, options, said):
    make_run()
    with pytest.raises(Misconfigured) as error:
        write_figures([tmp_path / "runs"], tmp_path / "figures", **options)
    assert said in str(error.value)


def test_runs_without_a_round_have_nothing_to_draw(make_run, tmp_path):
    run = make_run(drop=("partition", "clients"))
    (run / "history.jsonl").write_text("")
    (run / "diagnostics.jsonl").write_text("")
    with pytest.raises(Misconfigured, match="nothing to draw"):
        write_figures([tmp_path / "runs"], tmp_path / "figures")


def test_a_place_that_cannot_be_written_is_an_error(make_run, tmp_path):
    make_run()
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot write"):
        write_figures([tmp_path / "runs"], tmp_path / "file", formats=["svg"], columns="1", paper="fe-f7")


def test_a_method_has_one_colour_whichever_methods_a_figure_draws(make_run, tmp_path):
    """FedETF comes after FedAvg, which has no error of neural collapse here, and keeps the second colour."""
    make_run("fedavg", drop=("nc_error", "nc_error_centred"))
    make_run("fedetf")
    groups = group_runs(read_runs([tmp_path / "runs"]))
    parts = {part.name: part for part in general_figures()}
    colours = {}
    for name in ("accuracy", "nc-error-variants"):
        figure = draw(build_panels(parts[name], groups, strict=False), TWO_COLUMNS)
        [found] = figure.legends
        texts = [text.get_text() for text in found.get_texts()]
        colours[name] = dict(zip(texts, (handle.get_color() for handle in found.legend_handles), strict=True))
        assert {line.get_color() for line in figure.axes[0].lines} == set(colours[name].values())
    assert colours == {
        "accuracy": {"fedavg": COLOURS[0], "fedetf": COLOURS[1]},
        "nc-error-variants": {"fedetf": COLOURS[1]},
    }


def test_a_papers_figure_has_the_colours_of_all_runs_of_the_folder(make_run, tmp_path):
    for method in ("fedavg", "fedetf", "fedblade"):
        make_run(method)
    groups = group_runs(read_runs([tmp_path / "runs"]))
    [panel] = build_panels(paper_figure("fb-f3")[0], groups[1:], strict=True, among=groups)
    figure = draw([panel], TWO_COLUMNS)
    assert [line.get_color() for line in figure.axes[0].lines] == [COLOURS[1], COLOURS[2]]


def test_cosines_have_the_colours_of_the_page(make_run, tmp_path):
    make_run()
    part = next(part for part in general_figures() if part.name == "class-cosines")
    figure = draw(build_panels(part, group_runs(read_runs([tmp_path / "runs"])), strict=False), TWO_COLUMNS)
    [image] = figure.axes[0].get_images()
    shades = [to_hex(image.cmap(image.norm(value))) for value in (-1.0, 1.0)]
    assert shades == [COLOURS[1], COLOURS[0]]
    assert min(image.cmap(image.norm(0.0))[:3]) > 0.98
