"""Tables and measures against numbers worked out by hand, from made-up runs."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from fedblade.protocols import DEVIATION
from fedblade.studies import outcome_files, outcome_table, outcomes, plan_reproduction, planned_table
from fedblade.studies._measures import FinishedRun, Measurement, measure, speedup

OVER_SEEDS = f"ours is mean ± {DEVIATION}"
TITLE = "tn-t1: Tiny Table 1: two methods, and one that a benchmark measures"


def run(accuracies, **summary):
    rows = [{"round": n, "test_accuracy": value, "seconds": 60.0 * n} for n, value in enumerate(accuracies, 1)]
    return FinishedRun(rows, summary)


@pytest.fixture
def filled(tiny, tmp_path, finish):
    """tn-t1 with FedAvg finished (48 and 52, then 81 and 82), one seed of FedProx, and cells for a benchmark."""
    plan = plan_reproduction(tiny("tn-t1"), out=tmp_path)
    results = iter([48.0, 52.0, 51.0, None, 81.0, 82.0, None, None])
    for each, accuracy in zip(plan.runs, results, strict=True):
        if accuracy is not None:
            finish(each, [10.0, accuracy])
    return plan


def test_markdown(filled):
    text = outcome_files(replace(filled, changes=("shortened to 2 of 3 rounds",)), outcomes(filled))[".md"]
    assert text == (
        f"# {TITLE}\n\n*difference = ours - paper.*\n*shortened to 2 of 3 rounds.*\n*{OVER_SEEDS}.*\n\n"
        "| level | method | ours | paper | difference |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| 0.1 | FedAvg | 50.00 ± 2.83 | 50 ± 1 | +0.00 |\n"
        "| 0.1 | FedProx | 51.00 (1 of 2 runs finished) | 51.5 | -0.50 |\n"
        "| 0.1 | Traced | pending: `fedblade bench losses` | 10 ± 0.1 | – |\n"
        "| 1 | FedAvg | 81.50 ± 0.71 | 80 ± 2 | +1.50 |\n"
        "| 1 | FedProx | not run yet | failed | – |\n"
        "| 1 | Traced | pending: `fedblade bench losses` | – | – |\n"
    )


def test_latex(filled):
    text = outcome_files(filled, outcomes(filled)[:2])[".tex"]
    over = OVER_SEEDS.replace("±", "$\\pm$").replace("−", "$-$")
    assert text == (
        f"\\begin{{table}}\n\\caption{{{TITLE}. difference = ours - paper. {over}}}\n"
        "\\begin{tabular}{lrrr}\n\\toprule\n"
        "method & ours & paper & difference \\\\\n\\midrule\n"
        "FedAvg & 50.00 $\\pm$ 2.83 & 50 $\\pm$ 1 & +0.00 \\\\\n"
        "FedProx & 51.00 (1 of 2 runs finished) & 51.5 & -0.50 \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def test_csv(filled):
    text = outcome_files(replace(filled, changes=("short",)), outcomes(filled))[".csv"]
    note = f"short; {OVER_SEEDS}"
    assert text.splitlines()[:4] == [
        "preset,dataset,partition,level,clients,participants,model,method,metric,ours_mean,ours_std,ours_seeds,runs,bound,"
        "paper_mean,paper_std,difference,note",
        f"tn-t1,digits,dirichlet,0.1,6,3,mlp,FedAvg,accuracy,50,2.82843,48 52,2,,50,1,0,{note}",
        f"tn-t1,digits,dirichlet,0.1,6,3,mlp,FedProx,accuracy,51,,51,1,,51.5,,-0.5,1 of 2 runs finished; {note}",
        f"tn-t1,digits,dirichlet,0.1,6,3,mlp,Traced,accuracy,,,,0,,10,0.1,,pending: `fedblade bench losses`; {note}",
    ]


def texts(table):
    """Headings, and rows of text."""
    return [column.heading for column in table.columns], [[cell.text for cell in row] for row in table.rows]


def test_failed_runs_are_named(filled):
    runs = filled.runs
    found = outcomes(filled, {runs[-1].folder: "it broke"})
    assert [each.note for each in found if each.line.facts["method"] == "FedProx"] == [
        "1 of 2 runs finished",
        "failed",
    ]


def test_lines_without_data_say_so(tiny, tmp_path):
    plan = plan_reproduction(tiny("tn-one"), out=tmp_path)
    plan.absent["digits"] = "get it"
    assert plan.present_runs == []
    assert [each.note for each in outcomes(plan)] == ["data set digits is not on this machine"]


def test_rounds_to_accuracy_and_speedups(tiny, tmp_path, finish):
    """FedAvg gets to 20 % in rounds 2 and 3, FedProx in 1 and 1; nobody gets to 99 %."""
    plan = plan_reproduction(tiny("tn-t2"), out=tmp_path)
    for each, curve in zip(plan.runs, [[10, 20, 30], [10, 19.9, 30], [20, 20, 20], [25, 5, 5]], strict=True):
        finish(each, curve)
    rows = [f"| {' | '.join(row)} |" for row in texts(outcome_table(outcomes(plan), []))[1]]
    assert rows == [
        "| FedAvg | rounds_to_20pct | 2.5 ± 0.7 | 2 | +0.5 |",
        "| FedAvg | speedup_to_20pct | 1.0 | – | – |",
        "| FedAvg | rounds_to_99pct | 3+ | – | – |",
        "| FedAvg | speedup_to_99pct | needs runs of FedAvg that get there | – | – |",
        "| FedProx | rounds_to_20pct | 1 ± 0 | 3+ | – |",
        "| FedProx | speedup_to_20pct | 2.5 | <0.6 | – |",
        "| FedProx | rounds_to_99pct | 3+ | – | – |",
        "| FedProx | speedup_to_99pct | needs runs of FedAvg that get there | – | – |",
    ]


def test_variants_stand_side_by_side_each_with_its_own_baseline(tiny, tmp_path, finish):
    """FedAvg needs 2 rounds in one reading and 3 in the other, FedProx 1 and 1."""
    where = ["split=large", "split=small"]
    both = plan_reproduction(tiny("tn-read"), where=where, out=tmp_path)
    for run in both.runs:
        curve = [10, 20, 20] if "split=large" in run.label else [10, 10, 20]
        finish(run, [20, 20, 20] if run.label.startswith("FedProx") else curve)
    header, rows = texts(outcome_table(outcomes(both), []))
    assert header[:3] == ["method", "split", "metric"]
    speedups = {(row[0], row[1]): row[3] for row in rows if row[2] == "speedup_to_20pct"}
    assert speedups == {
        ("FedAvg", "large"): "1.0",
        ("FedAvg", "small"): "1.0",
        ("FedProx", "large"): "2.0",
        ("FedProx", "small"): "3.0",
    }
    assert {(row[0], row[4]) for row in rows if row[2] == "rounds_to_20pct"} == {("FedAvg", "2"), ("FedProx", "3+")}
    assert both.remarks == ("Nobody knows which reading is right",)
    default = plan_reproduction(tiny("tn-read"), out=tmp_path)
    assert default.remarks == ("split = large", "Nobody knows which reading is right")
    assert [run.folder for run in default.runs] == [run.folder for run in both.runs if "split=large" in run.label]
    first, *lines = outcome_files(default, outcomes(default))[".csv"].splitlines()
    column = first.split(",").index("split")
    assert {line.split(",")[column] for line in lines} == {"large"}
    assert all("Nobody knows" in line for line in lines)


def test_a_speedup_finds_its_baseline_among_runs_that_were_not_asked_for(tiny, tmp_path, finish):
    for each in plan_reproduction(tiny("tn-t2"), where=["method=FedAvg"], out=tmp_path).runs:
        finish(each, [10, 10, 20])
    asked = plan_reproduction(tiny("tn-t2"), where=["method=FedProx", "metric=speedup_to_20pct"], out=tmp_path)
    assert outcomes(asked)[0].note == "not run yet"
    for each in asked.runs:
        finish(each, [10, 20, 20])
    (found,) = outcomes(asked)
    assert found.ours == Measurement(1.5, None, 2)


@pytest.mark.parametrize(
    ("baseline", "own", "expected"),
    [
        (Measurement(85.0, 0.0, 3), Measurement(122.0, 0.0, 3), "0.7"),
        (Measurement(104.0, 0.0, 3), Measurement(92.0, 0.0, 3), "1.1"),
        (Measurement(180.0, 0.0, 3), Measurement(200.0, None, 3, "+"), "<0.9"),
    ],
)
def test_speedups_follow_from_rounds(baseline, own, expected):
    assert speedup(baseline, own).text(1) == expected


def test_one_seed_that_never_gets_there_makes_a_bound():
    assert measure("rounds_to 50", [[run([60.0, 70.0])], [run([10.0, 20.0])]]) == Measurement(2.0, None, 2, "+")


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("final", 12.0),
        ("best", 40.0),
        ("last5", (3 + 4 + 5 + 6 + 12) / 5),
        ("last10", (40 + 2 + 3 + 4 + 5 + 6 + 12) / 7),
        ("seconds_per_round", 240.0),
        ("minutes_per_round", 4.0),
        ("gapa general_accuracy", 40.5),
        ("gapa general_final_accuracy", 11.5),
        ("gapa personal_accuracy", 77.0),
        ("gapa personal_final_accuracy", 75.0),
        ("ft personal_std", 3.0),
        ("ft personal_worst_decile", 60.0),
    ],
)
def test_measures(how, value):
    summary = {"general_accuracy": 40.5, "general_final_accuracy": 11.5, "personal_accuracy": 77.0}
    summary |= {"personal_final_accuracy": 75.0, "personal_std": 3.0, "personal_worst_decile": 60.0}
    found = measure(how, [[run([40.0, 2.0, 3.0, 4.0, 5.0, 6.0, 12.0], **summary)]])
    assert found.mean == pytest.approx(value)


def test_a_deviation_over_clients_stands_beside_the_number_of_a_single_seed():
    first = run([1.0], personal_accuracy=70.0, personal_std=4.0)
    second = run([1.0], personal_accuracy=74.0, personal_std=6.0)
    one = measure("ft personal_accuracy personal_std", [[first]])
    assert one == Measurement(70.0, 4.0, 1, over="clients")
    assert one.text() == "70.00 ± 4.00"
    assert measure("ft personal_accuracy personal_std", [[first], [second]]) == Measurement(
        72.0, 5.0, 2, over="clients"
    )
    assert measure("ft personal_accuracy", [[first], [second]]) == Measurement(72.0, 8.0**0.5, 2)
    assert measure("ft personal_accuracy", [[first]]).text() == "70.00"
    assert measure("ft personal_accuracy personal_std", [[run([1.0], personal_accuracy=70.0)]]).text() == "70.00"
    assert measure("ft personal_accuracy personal_std", [[run([1.0], personal_std=4.0)]]) is None


def test_an_accuracy_of_zero_is_a_number():
    assert measure("final", [[run([40.0], final_accuracy=0.0)]]).mean == 0.0


def test_measures_of_history_fields_and_domains():
    rows = [{"round": 1, "erank": 3.0, "domain_accuracy": {"0": 10.0, "1": 30.0}}, {"round": 2}]
    one = [[FinishedRun(rows, {})]]
    assert [measure(how, one).mean for how in ("history erank", "domain", "domain 1")] == [3.0, 20.0, 30.0]
    assert measure("history other", one) is None


def test_cells_that_a_paper_averages_are_averaged_seed_by_seed():
    first, second = [run([10.0]), run([20.0]), run([60.0])], [run([40.0]), run([50.0]), run([60.0])]
    assert measure("final", [first, second]) == Measurement(40.0, 200.0**0.5, 2)


def test_a_file_that_names_a_paper_is_compared_with_its_published_numbers(tmp_path):
    text = """
    paper = "FedBlade"
    [presets.mine]
    tables = ["1"]
    seeds = [1]
    partition = {name = "dirichlet", alpha = 0.05}
    federation = {num_clients = 100, clients_per_round = 20, rounds = 200}
    model.name = "mobilenet_v2"
    grid = {dataset = "cifar10", method = ["fedavg", {label = "Mine", method = {name = "fedavg"}}]}
    measures = {accuracy_last10 = "last10"}
    """
    path = tmp_path / "mine.toml"
    path.write_text(text)
    theirs, mine = plan_reproduction(path, out=tmp_path).lines
    assert (theirs.columns["method"], theirs.published.mean, theirs.published.std) == ("FedAvg", 55.19, 3.81)
    assert mine.published is None


@pytest.mark.usefixtures("command")
def test_a_plan_fits_eighty_columns_and_says_what_it_leaves_out(tmp_path):
    """The data set decides the model of FedDr+, and no line has begun. `command` has loaded the command line."""
    from fedblade.cli._studies import drawn_table

    plan = plan_reproduction("fr-t3", where=["block=released", "method=FedAvg", "method=SphereFed"], out=tmp_path)
    table = planned_table(plan)
    header, rows = texts(table)
    assert header == ["dataset", "partition", "level", "method", "metric", "paper"]
    console = Console(width=80, file=io.StringIO())
    console.print(drawn_table(replace(table, notes=())))
    lines = console.file.getvalue().splitlines()
    assert not any("…" in line for line in lines)
    assert len(lines) <= 2 + 2 * len(rows)
    assert table.notes[0] == "the same in every line: clients = 100, participants = 10, state = 0 of 3 runs done"
    assert plan.remarks[0] == "model = MobileNet for CIFAR-100, VGG11 for CIFAR-10, ResNet-18 for ImageNet-100"
    with_model = planned_table(plan_reproduction("fb-t11", out=tmp_path))
    assert texts(with_model)[0] == ["dataset", "model", "method", "paper"]
    assert "state = needs no run" in with_model.notes[0]


def test_a_plan_has_the_states_of_its_lines_where_they_differ(filled):
    table = planned_table(filled)
    header, rows = texts(table)
    assert header == ["level", "method", "paper", "state"]
    assert {row[-1] for row in rows} == {
        "2 of 2 runs done",
        "1 of 2 runs done",
        "0 of 2 runs done",
        "pending: `fedblade bench losses`",
    }
    assert table.notes[0].startswith("the same in every line: dataset = digits, partition = dirichlet, clients = 6")
