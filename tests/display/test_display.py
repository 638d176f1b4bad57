"""What a result shows: in a session, in a notebook, as a plot, as a frame, and as a page; with a folder and without."""

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

import fedblade
from fedblade.api import Misconfigured
from fedblade.report import notebook_html
from fedblade.results import Table, group_runs, read_runs

mpl.use("agg")
QUICK = {
    "model": "mlp", "hidden": [16], "dim": 8, "method": "fedavg", "num_clients": 6, "clients_per_round": 3, "rounds": 3,
    "epochs": 1, "metrics": ["accuracy", "spectrum"],
}  # fmt: skip


@pytest.fixture(scope="module")
def in_memory():
    return fedblade.run("quickstart", **QUICK)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    return fedblade.run("quickstart", out=tmp_path_factory.mktemp("shown") / "run", **QUICK)


class Elements(HTMLParser):
    """The elements of a text, which must all be closed, and the addresses in it."""

    def __init__(self, text):
        super().__init__()
        self.names, self.addresses, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def pictures(html):
    """The drawings inside the HTML."""
    found = [address.partition("base64,")[2] for address in Elements(html).addresses]
    return [ET.fromstring(base64.b64decode(drawing)) for drawing in found]


def without_clock(numbers):
    return {name: value for name, value in numbers.items() if "seconds" not in name}


def test_a_run_without_a_folder_is_the_run_that_a_folder_would_hold(in_memory, on_disk):
    (kept,), (read,) = in_memory._records(), on_disk._records()
    for name in ("partition", "diagnostics", "clients", "stored_fields", "stored_hardness", "pictures", "left_out"):
        assert getattr(kept, name) == getattr(read, name), name
    numbers = ([without_clock(line.numbers) for line in record.history] for record in (kept, read))
    assert next(numbers) == next(numbers)
    assert without_clock(kept.summary) == without_clock(read.summary)
    assert len(group_runs([kept, replace(read, path=kept.path)])) == 1, "their settings are the same"


def test_the_line_of_a_session_is_short(in_memory, on_disk):
    accuracy = f"final_accuracy={on_disk.summary['final_accuracy']:.2f}"
    start = f"Result(method='fedavg', dataset='digits', seed=1, rounds=3, {accuracy}, last10_accuracy="
    assert repr(in_memory).startswith(start)
    assert repr(on_disk).startswith(start)
    assert repr(on_disk).endswith(f"path='{on_disk.path}')")
    assert len(repr(in_memory).splitlines()) == 1


def test_a_notebook_gets_a_table_and_the_curve_without_scripts_or_addresses(on_disk):
    html = on_disk._repr_html_()
    elements = Elements(html)
    assert {"table", "img"} <= set(elements.names) <= {"div", "p", "b", "small", "table", "tbody", "tr", "td", "img"}
    assert all(address.startswith("data:image/svg+xml;base64,") for address in elements.addresses)
    (curve,) = pictures(html)
    assert curve.tag == "{http://www.w3.org/2000/svg}svg"
    assert f"{on_disk.summary['final_accuracy']:.2f}" in html
    assert str(on_disk.path) in html


def test_names_cannot_break_out_of_the_notebook(on_disk):
    table = Table.of_texts(["<b>", "x"], [["<script>", "&"]], ["x"])
    assert "<script>" not in notebook_html("a <i> title", [table], group_runs(on_disk._records()))


def test_several_lines_have_a_legend(on_disk, in_memory):
    (read,), (kept,) = on_disk._records(), in_memory._records()
    other = replace(kept, summary={**kept.summary, "method": "fedprox"})
    html = notebook_html("two", [], group_runs([read, other]))
    assert len(pictures(html)) == 3, "two samples of lines and the curve"
    assert re.search(r"fedavg .*fedprox ", html)


def test_a_run_without_an_evaluation_has_no_curve(on_disk):
    (record,) = on_disk._records()
    bare = replace(record, history=tuple(replace(line, accuracy=None, numbers={}) for line in record.history))
    assert pictures(notebook_html("nothing measured", [], group_runs([bare]))) == []


def test_a_plot_shows_any_number_of_the_history(on_disk):
    axes = on_disk.plot("test_loss")
    drawn = [record["test_loss"] for record in on_disk.history]
    assert list(axes.lines[0].get_ydata()) == drawn
    with pytest.raises(Misconfigured, match=r"no run has the number 'test_los'.*'test_loss'"):
        on_disk.plot("test_los")


def test_a_frame_has_a_row_for_each_round(on_disk):
    pytest.importorskip("pandas")
    frame = on_disk.to_pandas()
    assert frame.to_dict("records") == on_disk.history


def test_a_missing_package_is_named(on_disk, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Misconfigured, match=r"to_pandas\(\) needs the package 'pandas'.*'fedblade\[pandas\]'"):
        on_disk.to_pandas()


def test_the_report_is_in_the_folder_or_where_one_works(in_memory, on_disk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert on_disk.report() == on_disk.path / "report.html"
    assert in_memory.report() == tmp_path / "report-fedavg-seed1.html"
    assert in_memory.report("mine.html") == tmp_path / "mine.html"
    assert "fedavg on digits" in (tmp_path / "mine.html").read_text()
    with pytest.raises(Misconfigured, match="is a folder; expected a file"):
        on_disk.report(tmp_path)


def test_a_result_outlives_its_folder(tmp_path):
    result = fedblade.run("quickstart", out=tmp_path / "run", **QUICK)
    kept = result.with_all_in_memory()
    (tmp_path / "run").rename(tmp_path / "gone")
    assert kept.path is None
    (read,) = read_runs([tmp_path / "gone"])
    assert kept._records()[0].diagnostics == read.diagnostics
    assert [record["round"] for record in kept.diagnostics] == list(read.diagnostics)
