"""Comparisons in which a run fails, is in the way, or comes in an order of the user's."""

import json
import re
import shutil

import pytest

import fedblade

BREAKS = """
from dataclasses import replace

from fedblade.methods.fedavg import fedavg

def breaks():
    def server(state, sums):
        new = fedavg().server(state, sums)
        broken = {key: value * float("nan") for key, value in new.params.items()}
        return new.replace(params=broken if new.round == 1 else new.params)

    return replace(fedavg(), server=server)
"""


@pytest.fixture
def comparison(cli, small, tmp_path):
    """Compare a method that breaks in its second round with one that does not."""
    (tmp_path / "own.py").write_text(BREAKS)
    return lambda: cli("compare", *small, "--methods", "own.py:breaks,fedavg", "--seeds", "1", "--out", "c")


def statuses(folder):
    return {path.parent.name: json.loads(path.read_text())["status"] for path in folder.glob("*/summary.json")}


def test_a_run_that_fails_does_not_stop_the_others(comparison, tmp_path):
    for _ in range(2):
        answer = comparison()
        assert answer.status == 1
        assert len(answer.err.splitlines()) == 1
        assert "1 of 2 runs failed" in answer.err
        assert "non-finite" in answer.err
        assert answer.last == "c/report.html"
        assert "0/1, 1 failed" in answer.out
        assert statuses(tmp_path / "c") == {"own.py-breaks-seed1": "failed", "fedavg-seed1": "finished"}
    assert "1 of 1 failed" in (tmp_path / "c" / "report.html").read_text()


def test_when_every_run_fails_there_is_a_table_all_the_same(cli, small, tmp_path):
    answer = cli("compare", *small, "--methods", "fedavg,fedprox", "--seeds", "1", "--set", "lr=1e20", "--out", "c")
    assert (answer.status, answer.last) == (1, "c/report.html")
    assert "2 of 2 runs failed" in answer.err
    assert answer.out.count("0/1, 1 failed") == 2
    assert set(statuses(tmp_path / "c").values()) == {"failed"}


def test_finished_runs_of_another_configuration_are_not_taken_for_these(cli, small):
    command = ("compare", *small, "--methods", "fedavg", "--seeds", "1", "--out", "c")
    cli(*command).done()
    assert "optimizer.lr" in cli(*command, "--set", "lr=0.5").mistake()


def test_an_edited_file_is_named_although_its_run_is_finished(cli, small, tmp_path):
    (tmp_path / "mine.py").write_text("from fedblade.methods.fedavg import fedavg\ndef mine():\n    return fedavg()\n")
    command = ("compare", *small, "--methods", "mine.py:mine", "--seeds", "1", "--out", "c")
    cli(*command).done()
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# edited\n")
    assert "mine.py' was changed" in cli(*command).mistake()


def test_a_calibrated_method_is_shown_and_ranked_after_its_calibration(cli, small, tmp_path):
    """CCVR trains as FedAvg does: only the calibration tells the two apart."""
    answer = cli("compare", *small, "--methods", "fedavg,ccvr", "--seeds", "1", "--out", "c", "--quiet").done()
    fedavg, ccvr = (json.loads((tmp_path / f"c/{name}-seed1/summary.json").read_text()) for name in ("fedavg", "ccvr"))
    assert ccvr["last10_accuracy"] == fedavg["last10_accuracy"] == fedavg["accuracy"] != ccvr["accuracy"]
    lines = {name: line for line in answer.out.splitlines() for name in ("fedavg", "ccvr") if line.startswith(name)}
    assert f"{ccvr['accuracy']:.2f}†" in lines["ccvr"]
    assert f"{fedavg['accuracy']:.2f}" in lines["fedavg"]
    assert "†" not in lines["fedavg"]
    best = "ccvr" if ccvr["accuracy"] > fedavg["accuracy"] else "fedavg"
    assert [name for name, line in lines.items() if "* " in line] == [best]
    assert "† after calibration at the end of the run" in answer.out
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert "† after calibration at the end of the run" in (tmp_path / "c" / "report.html").read_text()


def test_methods_have_one_order_in_the_table_both_pages_and_the_figures(cli, small, tmp_path):
    """That of the papers, and with it one colour, however the methods were given."""
    order = ["fedavg", "fedprox", "fedetf"]
    answer = cli(
        "compare", *small, "--methods", "fedprox,fedetf,fedavg", "--seeds", "1", "--out", "c", "--quiet"
    ).done()
    assert re.findall(r"^ *(fed\w+) ", answer.out, re.MULTILINE) == order
    assert "all 3" in answer.out
    compared = (tmp_path / "c" / "report.html").read_text()
    cli("report", "c", "--out", "r.html", "--figures", "f", "--formats", "svg", "--columns", "2").done()
    for page in (compared, (tmp_path / "r.html").read_text()):
        results = page[page.index('id="results"') :].partition("</table>")[0]
        assert re.findall(r'<span class="short">(fed\w+)</span>', results) == order
    drawn = (tmp_path / "f" / "accuracy-2col.svg").read_text()
    colours = [drawn.index(colour) for colour in ("#0072b2", "#d55e00", "#009e73")]
    assert colours == sorted(colours)


def test_personal_models_have_a_column_where_they_were_measured(cli, small):
    tuned = cli("compare", *small, "--methods", "fedavg,fedavg-ft", "--seeds", "1", "--out", "a").done()
    header, *rows = [line.split("│") for line in tuned.out.replace("┃", "│").splitlines() if "│" in line or "┃" in line]
    place = [cell.strip() for cell in header].index("personal")
    accuracy = {row[0].strip(): row[place].strip() for row in rows}
    assert accuracy["fedavg"] == "–"
    assert 0 <= float(accuracy["fedavg-ft"]) <= 100
    assert "personal: personal models" in tuned.out
    plain = cli("compare", *small, "--methods", "fedavg", "--seeds", "1", "--out", "b").done()
    assert "personal" not in plain.out


def test_the_table_and_the_report_count_rounds_to_the_same_accuracy(cli, small, tmp_path):
    """Without a goal of the user's, the one `report` chooses for these runs, whatever else is in the folder."""
    command = ("compare", *small, "--methods", "fedavg", "--seeds", "1", "--out", "c")
    cli(*command).done()
    run = tmp_path / "c/fedavg-seed1"
    rows = [json.loads(line) | {"test_accuracy": 99.0} for line in (run / "history.jsonl").read_text().splitlines()]
    for better in (tmp_path / "c/other-seed1", tmp_path / "c/other-seed2"):
        shutil.copytree(run, better)
        (better / "folder.json").unlink()
        (better / "config.toml").write_text((run / "config.toml").read_text().replace('"fedavg"', '"fedprox"'))
        (better / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def goal(text):
        return re.search(r"\bto (\d+) %", text)[1]

    cli("report", run).done()
    chosen = goal((run / "report.html").read_text())
    for given, expected in (((), chosen), (("--threshold", "42"), "42")):
        assert goal(cli(*command, *given).done().out) == expected
        page = (tmp_path / "c/report.html").read_text()
        assert f"rounds to {expected} %" in page
        assert "fedprox" in page


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("global", "personal models on the whole test set"),
        ("proportional", "personal models on their own test samples"),
    ],
)
def test_the_table_says_what_personal_models_were_measured_on(cli, small, split, said):
    command = ("compare", *small, "--methods", "local_ce", "--seeds", "1", "--set", f"dataset.test_split={split}")
    assert said in " ".join(cli(*command, "--out", "c").done().out.split())


def test_runs_from_python_are_those_of_the_command(cli, small, tmp_path):
    settings = {"model": "mlp", "hidden": [16], "dim": 8, "num_clients": 6, "clients_per_round": 3, "rounds": 3,
                "epochs": 1, "metrics": ["accuracy", "spectrum", "drift"]}  # fmt: skip
    fedblade.compare(methods=["fedavg", "fedprox"], seeds=[1], out=tmp_path / "c", **settings)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").glob("*/model.safetensors")}
    cli("compare", *small, "--methods", "fedavg,fedprox", "--seeds", "1", "--out", "c").done()
    assert len(before) == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
