"""`fedblade report --figures`: figures and tables for papers from real runs."""

import csv
import json
import xml.etree.ElementTree as ET

import pytest


@pytest.fixture
def runs(tmp_path):
    """A folder with a run that measured accuracy only, as it lies on disk."""
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.toml").write_text('seed = 1\n[method]\nname = "fedavg"\n')
    rows = [{"round": number, "test_accuracy": 20.0 * number, "test_loss": 1.0 / number} for number in (1, 2, 3)]
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "runs"


def test_figures_and_tables_of_a_real_run_are_written_and_named(cli, small, tmp_path):
    cli("run", *small, "--out", "runs/mine").done()
    answer = cli("report", "runs", "--figures", "figures", "--formats", "svg,png", "--columns", "1").done()
    *written, page = answer.out.splitlines()
    assert page == "runs/report.html"
    assert {"figures/accuracy-1col.svg", "figures/accuracy-1col.png", "figures/label-map-1col.svg"} <= set(written)
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".svg", ".png", ".md", ".csv", ".tex"}
    assert sorted(written) == sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "figures").iterdir())
    ET.parse(tmp_path / "figures" / "accuracy-1col.svg")
    [row] = csv.DictReader((tmp_path / "figures" / "results.csv").read_text().splitlines())
    assert row["rounds_done"] == "3"


def test_a_papers_figure_is_drawn_from_any_run_that_has_its_numbers(cli, runs, tmp_path):
    asked = ("--figures", "figures", "--formats", "svg", "--columns", "2", "--paper", "fb-f3")
    assert cli("report", runs, *asked).done().out.splitlines()[0] == "figures/fb-f3-2col.svg"
    assert [path.name for path in (tmp_path / "figures").glob("*.svg")] == ["fb-f3-2col.svg"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--figures", "f", "--paper", "fd-f99"), ["fd-f99", "fd-f2", "fr-f7"]),
        (("--figures", "f", "--paper", "fd-f4"), ["fd-f4", "spectrum_ratio", "evaluation.metrics"]),
        (("--paper", "fd-f4"), ["--figures DIR"]),
        (("--figures", "f", "--formats", "gif"), ["gif", "svg, pdf, png"]),
        (("--figures", "f", "--columns", "3"), ["'3'", "1, 2, both"]),
        (("--figures", "f", "--paper", "fb-f6"), ["fb-f6", "method.lambda_decorr", "fedblade sweep"]),
        (("--figures", "f", "--threshold", "nan"), ["nan", "above 0 and at most 100"]),
        (("--figures", "f", "--threshold", "900"), ["900", "above 0 and at most 100"]),
        (("--threshold", "0"), ["above 0 and at most 100"]),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(cli, runs, tmp_path, options, said):
    complaint = cli("report", runs, *options).mistake()
    for words in said:
        assert words in complaint
    assert not (tmp_path / "f").exists()
    assert not (tmp_path / "runs" / "report.html").exists()


def test_what_was_left_out_is_said_on_the_page_and_by_the_command(cli, runs, tmp_path):
    run = tmp_path / "runs" / "mine"
    (run / "diagnostics.jsonl").write_text('{"round": 1}\ngarbage\n')
    with (run / "history.jsonl").open("a") as file:
        file.write('{"round": 4, "test_accuracy": "abc"}\n')
    answer = cli("report", runs)
    said = "test_accuracy of round 4 in mine/history.jsonl; line 2 of mine/diagnostics.jsonl."
    assert answer.err.splitlines() == [f"watch out: Left out, because it cannot be read: {said}"]
    assert (answer.status, answer.last) == (0, "runs/report.html")
    assert said in (run.parent / "report.html").read_text()
