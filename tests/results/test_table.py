"""One table, written for several media."""

import pytest

from fedblade.results import (
    Table,
    TableCell,
    TableColumn,
    comparison_rows,
    comparison_table,
    latex_table,
    markdown_table,
)

COMMON = ["method", "seeds", "last 10 rounds, %", "final round, %", "rounds to 60 %", "seconds per round"]
TABLE = Table(
    [TableColumn("name", numeric=False), TableColumn("accuracy, %")],
    [
        [TableCell("a|b"), TableCell("81.00", "± 0.31", "†", "small print", rank=1)],
        [TableCell("c_d"), TableCell("–", rank=2)],
    ],
)


def test_markdown_marks_the_best_and_leaves_small_print_out():
    assert markdown_table(TABLE) == (
        "| name | accuracy, % |\n| --- | ---: |\n| a\\|b | **81.00** ± 0.31† |\n| c_d | <u>–</u> |\n"
    )


def test_latex_escapes_what_means_something_to_it():
    lines = latex_table(TABLE, "50 % & more").splitlines()
    assert lines[1:3] == [r"\caption{50 \% \& more}", r"\begin{tabular}{lr}"]
    assert lines[6:8] == [r"a|b & \textbf{81.00} $\pm$ 0.31\dag{} \\", r"c\_d & \underline{--} \\"]


def test_a_table_of_texts_sets_numbers_right():
    table = Table.of_texts(["method", "ours"], [["fedavg", "81.0"]], numeric=["ours"])
    assert [column.numeric for column in table.columns] == [False, True]
    assert table.rows[0][1] == TableCell("81.0")


@pytest.mark.parametrize(
    ("medium", "headings"),
    [
        ("terminal", ["method", "runs", "last 10", "final", "to 60 %", "s/round", "kB up"]),
        (
            "page",
            ["method", "last 10 rounds, %", "final round, %", "rounds to 60 %", "seeds"],
        ),
        (
            "paper",
            [*COMMON, "MB up per round", "MB down per round"],
        ),
    ],
)
def test_every_medium_has_the_columns_it_has_room_for(make_run, tmp_path, medium, headings):
    for method in ("fedavg", "fedetf"):
        for seed in (1, 2):
            make_run(method, seed)
    rows = comparison_rows([tmp_path / "runs"], 60.0)
    table = comparison_table(rows, medium)
    assert [column.heading for column in table.columns] == headings
    assert [cells[0].text for cells in table.rows] == [row.label for row in rows]
    ranked = next(at for at, heading in enumerate(headings) if heading.startswith("last 10"))
    assert [cells[ranked].text for cells in table.rows] == [f"{row.ranked_mean:.2f}" for row in rows]
    assert sorted(cells[ranked].rank for cells in table.rows) == [1, 2]
    assert table.notes


def test_own_models_take_the_place_of_costs_in_the_terminal(make_run, tmp_path):
    make_run("fedavg", summary={"personal_accuracy": 50.0})
    rows = comparison_rows([tmp_path / "runs"])
    headings = {
        medium: [column.heading for column in comparison_table(rows, medium).columns] for medium in ("terminal", "page")
    }
    assert headings["terminal"][-1] == "personal"
    assert "personal models, %" in headings["page"]
    assert "seconds per round" not in headings["page"]
