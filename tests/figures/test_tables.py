"""Tables say the numbers of the comparison, in a form that can be read back."""

import csv
import json
import re

import pytest

from fedblade.figures import write_tables
from fedblade.results import comparison_rows


@pytest.fixture
def tables(make_run, tmp_path):
    """The comparison and its three files as text."""
    for method in ("fedavg", "fedetf", "fedavg+feddecorr"):
        for seed in (1, 2):
            make_run(method, seed)
    written = write_tables([tmp_path / "runs"], tmp_path / "tables", threshold=60.0)
    assert [path.name for path in written] == ["results.md", "results.csv", "results.tex"]
    return comparison_rows([tmp_path / "runs"], 60.0), *(path.read_text() for path in written)


def test_markdown_has_a_line_per_method_with_the_best_marked(tables):
    rows, text, _, _ = tables
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert lines[0][:4] == ["method", "seeds", "last 10 rounds, %", "final round, %"]
    assert lines[0][5] == "rounds to 60 %"
    for row, line in zip(rows, lines[2:], strict=True):
        wrap = {1: ("**", "**"), 2: ("<u>", "</u>")}.get(row.rank, ("", ""))
        assert line[:2] == [row.label, "2"]
        assert line[2] == f"{wrap[0]}{row.ranked_mean:.2f}{wrap[1]} ± {row.ranked_std:.2f}"
        assert line[5:] == [row.rounds_to_text, "0.25", "0.40", "0.60"]
    assert sorted(row.rank for row in rows) == [1, 2, 3]


def test_csv_has_every_number_in_full(tables):
    rows, _, text, _ = tables
    for row, stored in zip(rows, csv.DictReader(text.splitlines()), strict=True):
        assert stored["label"] == row.label
        for key in ("ranked_mean", "ranked_std", "final_mean", "own_mean", "seconds_per_round", "bytes_up_per_round"):
            assert float(stored[key]) == getattr(row, key)
        assert stored["seeds"] == "1 2"
        assert stored["rounds_to"].split() == list(row.rounds_to_seeds_text)


def test_latex_is_a_booktabs_table_with_the_best_marked(tables):
    rows, _, _, text = tables
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert text.count(r"\toprule") == 1
    for row, line in zip(rows, body, strict=True):
        cells = [cell.strip() for cell in line.removesuffix(r"\\").split("&")]
        mark = {1: r"\\textbf\{(.*)\}", 2: r"\\underline\{(.*)\}"}.get(row.rank, "(.*)")
        mean, std = re.fullmatch(mark + r" \$\\pm\$ (.*)", cells[2]).groups()
        assert (float(mean), float(std)) == pytest.approx((row.ranked_mean, row.ranked_std), abs=0.005)
        assert len(cells) == text.split(r"\midrule")[0].count("&") + 1


def test_names_that_mean_something_to_latex_or_markdown_are_escaped(make_run, tmp_path):
    make_run("feddr_plus|50%")
    markdown, _, latex = (path.read_text() for path in write_tables([tmp_path / "runs"], tmp_path / "tables"))
    assert r"feddr\_plus|50\% &" in latex
    assert r"| feddr_plus\|50% |" in markdown


def test_calibrated_models_and_missing_numbers_are_marked(make_run, tmp_path):
    run = make_run("ccvr", drop=("personal_accuracy",))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"calibrated": True, "final_accuracy": 77.5}))
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in history]
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    del summary["seconds"]
    (run / "summary.json").write_text(json.dumps(summary | {"calibrated": True, "final_accuracy": 77.5}))
    markdown, _, latex = (path.read_text() for path in write_tables([tmp_path / "runs"], tmp_path / "tables"))
    assert "| ccvr | 1 | 77.50† | 77.50† |" in markdown
    assert "personal models" not in markdown
    assert "| – |" in markdown
    assert r"77.50\dag{}" in latex
    assert "after calibration" in markdown
