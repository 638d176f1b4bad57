"""Cells join with the published results: every row has one line, and the line has the right number."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import fedblade
from fedblade.config.settings import lookup
from fedblade.presets.published import lines_of, published_rows
from support.all_presets import GRIDS, cell, lines, settled, shipped
from support.for_every import for_every

RESULTS = Path(fedblade.__file__).parent / "presets" / "files" / "papers" / "results.csv"
ALIASES = ("fr-t11", "fr-t12", "fr-f9")
TABLES = sorted({(name, table) for name in GRIDS if name not in ALIASES for table in shipped(name).tables})


def rows() -> list[dict[str, str]]:
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def excused(row, preset) -> bool:
    """Whether the preset's file says that nothing of ours can stand beside this row."""
    return any(
        each["table"] == row["table"] and all(row[key] == value for key, value in each.get("where", {}).items())
        for each in preset.unmatched
    )


def test_the_file_is_whole():
    assert len(rows()) == 2443


@for_every(TABLES)
def test_every_published_row_has_exactly_one_line(name, table):
    preset = replace(shipped(name), tables=(table,))
    hits = Counter(id(line.published) for line in lines_of(preset) if line.published is not None)
    assert set(hits.values()) == {1}
    missed = [row for row in published_rows(preset) if id(row) not in hits]
    allowed = [row for row in rows() if row["paper"] == preset.paper and row["table"] == table and excused(row, preset)]
    assert len(missed) == len(allowed)
    assert {row.columns["method"] for row in missed} == {row["method"] for row in allowed}


def test_every_published_table_has_one_preset():
    presets = [shipped(name) for name in GRIDS if name not in ALIASES]
    claimed = Counter((preset.paper, table) for preset in presets for table in preset.tables)
    assert set(claimed.values()) == {1}
    leftover = [row for row in rows() if (row["paper"], row["table"]) not in claimed]
    by_paper = {preset.paper: preset for preset in presets}
    assert all(excused(row, by_paper[row["paper"]]) for row in leftover)
    assert {(row["paper"], row["table"]) for row in leftover} == {("FedDr+", "12")}


def test_only_the_three_lost_cells_have_no_published_number():
    lost = [
        (name, line.columns["method"], line.columns["level"])
        for name in GRIDS
        if shipped(name).tables
        for line in lines(name)
        if line.published is None
    ]
    methods = ("DotRegression", "DotRegression-FT(L_DR)", "DotRegression-FT(L_Dr+)")
    assert lost == [("fr-t14", method, "0.05") for method in methods]


@pytest.mark.parametrize(
    ("name", "choice", "mean", "std"),
    [
        ("fb-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedAvg"}, 55.19, 3.81),
        ("fb-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedDecorr"}, 57.77, 3.51),
        ("fb-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedBlade"}, 75.83, 0.70),
        ("fb-t9", {"dataset": "Tiny-ImageNet", "level": "0.5", "local.epochs": "10"}, 44.40, 0.31),
        ("fd-t1", {"dataset": "Tiny-ImageNet", "level": "inf", "method": "MOON"}, 50.48, 0.57),
        ("fd-t3", {"dataset": "Office-Caltech10", "level": "Webcam", "method": "FedBN+FedDecorr"}, 93.22, 1.38),
        ("fd-t3", {"dataset": "Office-Caltech10", "level": "Avg", "method": "FedBN+FedDecorr"}, 74.00, 0.51),
        ("fg-t2", {"dataset": "SVHN", "level": "", "clients": "50", "method": "FedRoD", "metric": "PA"}, 92.04, None),
        ("fg-t4", {"dataset": "SVHN", "clients": "50", "method": "FedGELA w/o GE", "metric": "GA"}, 89.58, None),
        ("fe-t5", {"method": "FedRoD", "local.epochs": "4", "metric": "generalization"}, 57.85, 5.22),
        ("fr-t5", {"partition": "dirichlet", "level": "0.3", "method": "FedDr+-FT"}, 62.22, 0.86),
        ("fr-t16", {"method": "CE", "notes": "static client data"}, 46.20, None),
        ("fr-t17", {"clients": "1000", "method": "FedBABU"}, 25.10, 1.08),
    ],
)  # fmt: skip
def test_lines_carry_the_number_of_their_row(name, choice, mean, std):
    (line,) = [line for line in lines(name) if choice.items() <= line.facts.items()]
    assert (line.published.mean, line.published.std) == (mean, std)


def test_averages_are_over_the_three_splits_of_a_participation():
    line = next(
        line
        for line in lines("fg-t4")
        if line.columns["dataset"] == "SVHN" and line.columns["clients"] == "50" and line.columns["method"] == "FedAvg"
    )
    assert line.columns["level"] == "avg(IID,0.5,0.2)"
    assert [lookup(each.config, "partition.alpha") for each in line.cells] == [10000.0, 0.5, 0.2]


def test_the_betas_are_those_of_the_published_table():
    chosen = [row for row in rows() if row["paper"] == "FedDr+" and row["metric"] == "selected_beta"]
    assert len(chosen) == 72
    for row in chosen:
        table = settled(cell("fr-t2", partition=row["partition"], method=row["method"]))["method"]
        regulariser = table["name"].partition("+")[2]
        assert table[regulariser]["beta"] == float(row["mean"]), row["method"]
