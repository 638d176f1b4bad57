"""Finding and reading run directories."""

import json
import math
from pathlib import Path

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.results import read_runs, unreadable_note


def test_finds_runs_at_any_depth_once_and_in_order(make_run, tmp_path):
    make_run("b", folder="deep/er/b")
    run = make_run("a", folder="a")
    (run / "checkpoints" / "old").mkdir(parents=True)
    (run / "checkpoints" / "old" / "history.jsonl").write_text("")
    (tmp_path / "runs" / ".trash").mkdir()
    (tmp_path / "runs" / ".trash" / "history.jsonl").write_text("")

    found = read_runs([tmp_path / "runs", run, tmp_path / "runs" / "." / "a"])

    assert [record.part("method") for record in found] == ["a", "b"]


def test_the_pictures_of_a_run_without_a_partition_are_those_of_its_summary(make_run):
    run = make_run(accuracies=[10.0])
    stored = json.loads((run / "summary.json").read_text())
    for pictures, told in (({"source": "files of CIFAR-10"}, "files of CIFAR-10"), ({}, ""), (None, "")):
        (run / "summary.json").write_text(json.dumps(stored | {"pictures": pictures}))
        (run / "partition.json").unlink(missing_ok=True)
        assert read_runs([run])[0].pictures == told
    (run / "summary.json").write_text(json.dumps(stored | {"pictures": {"source": "summary"}}))
    (run / "partition.json").write_text(json.dumps({"pictures": "partition"}))
    assert read_runs([run])[0].pictures == "partition"


def test_torn_last_line_is_dropped_and_the_rest_kept(make_run):
    run = make_run(accuracies=[10.0, 20.0, 30.0], status=None)
    with (run / "history.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "test_accuracy": 4\xc3')

    (record,) = read_runs([run])

    assert [r.number for r in record.history] == [1, 2, 3]
    assert record.final_accuracy == 30.0


@pytest.mark.parametrize("torn", ["12", "[1]", "null", '{"test_accuracy": 3.0}', '{"round": "4"}'])
def test_a_last_line_that_is_json_but_no_round_is_torn_too(make_run, torn):
    run = make_run(accuracies=[10.0, 20.0], status=None)
    with (run / "history.jsonl").open("a") as file:
        file.write(torn)

    assert read_runs([run])[0].rounds_done == 2


def test_a_repeated_round_counts_once_with_its_later_values(make_run):
    run = make_run(accuracies=[10.0, 20.0], status=None)
    with (run / "history.jsonl").open("a") as file:
        file.write(json.dumps({"round": 2, "test_accuracy": 25.0}) + "\n")

    (record,) = read_runs([run])

    assert [(r.number, r.accuracy) for r in record.history] == [(1, 10.0), (2, 25.0)]


def test_missing_summary_means_in_progress_with_values_from_the_history(make_run):
    values = [float(v) for v in range(1, 16)]
    (record,) = read_runs([make_run("moon", 7, accuracies=values, planned=40, status=None)])

    assert (record.status, record.finished, record.seed) == ("in progress", False, 7)
    assert (record.part("method"), record.rounds_done, record.rounds_planned) == ("moon", 15, 40)
    assert record.last10_accuracy == pytest.approx(sum(range(6, 16)) / 10)
    assert (record.final_accuracy, record.best_accuracy) == (15.0, 15.0)


def test_a_finished_run_trusts_its_summary_and_an_interrupted_one_its_history(make_run):
    stored = {"final_accuracy": 55.0, "last10_accuracy": 54.0, "best_accuracy": 60.0}
    done = make_run(accuracies=[1.0, 2.0], summary=stored)
    cut = make_run(accuracies=[1.0, 2.0], summary=stored, status="interrupted")

    done_record, cut_record = read_runs([done, cut])

    assert (done_record.final_accuracy, done_record.last10_accuracy, done_record.best_accuracy) == (55.0, 54.0, 60.0)
    assert (cut_record.final_accuracy, cut_record.last10_accuracy, cut_record.best_accuracy) == (2.0, 1.5, 2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "95", True, 10**400])
def test_values_that_are_no_finite_number_count_as_missing(make_run, value):
    run = make_run(accuracies=[10.0, 20.0], summary={"final_accuracy": value})
    with (run / "history.jsonl").open("a") as file:
        file.write(json.dumps({"round": 3, "test_accuracy": value, "test_loss": value, "seconds": value}) + "\n")

    (record,) = read_runs([run])

    assert (record.history[-1].accuracy, record.history[-1].loss, record.history[-1].seconds) == (None, None, None)
    assert record.final_accuracy == 20.0


def test_a_run_that_has_only_started_is_found(make_run):
    run = make_run(status=None)
    (run / "history.jsonl").unlink()

    (record,) = read_runs([run])

    assert (record.status, record.rounds_done, record.final_accuracy) == ("in progress", 0, None)


def test_nothing_given_is_refused():
    with pytest.raises(Misconfigured, match="no run directory was given"):
        read_runs([])


def test_missing_path_a_file_and_an_empty_folder_are_refused(make_run, tmp_path):
    run = make_run()
    with pytest.raises(Misconfigured, match=r"nowhere' does not exist; expected a run directory"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(Misconfigured, match=r"is a file; expected a run directory. Give its folder"):
        read_runs([run / "history.jsonl"])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(Misconfigured, match=r"empty' holds no run"):
        read_runs([run, empty])


@pytest.mark.parametrize(
    ("name", "content", "left_out"),
    [
        ("config.toml", "method = = 1", "mine/config.toml"),
        ("summary.json", "{", "mine/summary.json"),
        ("summary.json", "", "mine/summary.json"),
        ("partition.json", "[]", "mine/partition.json"),
        ("partition.json", '{"counts": [[1, 2], [3]]}', "the counts in mine/partition.json"),
        ("partition.json", '{"counts": []}', "the counts in mine/partition.json"),
        ("partition.json", '{"counts": [[-1]]}', "the counts in mine/partition.json"),
    ],
)
def test_a_damaged_file_is_left_out_and_named_and_the_rest_is_read(make_run, name: str, content: str, left_out: str):
    run: Path = make_run(accuracies=[10.0, 20.0], folder="mine")
    (run / name).write_text(content)

    (record,) = read_runs([run])

    assert record.left_out == (left_out,)
    assert [round_.accuracy for round_ in record.history] == [10.0, 20.0]
    assert record.status == ("unknown" if name == "summary.json" else "finished")


@pytest.mark.parametrize("line", ["{}", "null", "[]", '{"round": true}', '{"round": -3}', '{"round": 1e99}'])
def test_a_line_of_the_history_that_is_no_round_is_left_out_and_named(make_run, line: str):
    run = make_run(accuracies=[10.0, 20.0, 30.0], folder="mine")
    lines = (run / "history.jsonl").read_text().splitlines()
    (run / "history.jsonl").write_text("\n".join([lines[0], line, lines[2]]) + "\n")

    (record,) = read_runs([run])

    assert [round_.number for round_ in record.history] == [1, 3]
    assert record.left_out == ("line 2 of mine/history.jsonl",)


def test_what_cannot_be_read_is_left_out_and_named(make_run):
    run = make_run(accuracies=[10.0, 20.0, 30.0], folder="mine")
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    rows[1] |= {"test_accuracy": "abc", "erank_feature": None, "nc_error": math.nan, "domain_accuracy": {"a": 1.0}}
    rows[2] |= {"seconds": True}
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "diagnostics.jsonl").write_text('{"round": 1}\ngarbage\n{"spectrum": [1.0]}\n{"round": 3}\n')
    (run / "clients.jsonl").write_text('{"client": 0}\n[1]\n')

    (record,) = read_runs([run])

    assert list(record.diagnostics) == [1, 3]
    assert record.left_out == (
        "test_accuracy of round 2 in mine/history.jsonl",
        "seconds of round 3 in mine/history.jsonl",
        "lines 2, 3 of mine/diagnostics.jsonl",
        "line 2 of mine/clients.jsonl",
    )
    assert unreadable_note([record]) == (
        "Left out, because it cannot be read: test_accuracy of round 2 in mine/history.jsonl; seconds of round 3 in "
        "mine/history.jsonl; lines 2, 3 of mine/diagnostics.jsonl; line 2 of mine/clients.jsonl."
    )


def test_a_broken_round_is_left_out_and_named(make_run):
    run = make_run(folder="mine")
    (run / "history.jsonl").write_text('{"round": 1}\n{"rou\n{"round": 3}\n')

    (record,) = read_runs([run])

    assert [round_.number for round_ in record.history] == [1, 3]
    assert record.left_out == ("line 2 of mine/history.jsonl",)


def test_many_losses_are_counted(make_run):
    run = make_run(accuracies=[10.0], folder="mine")
    (run / "diagnostics.jsonl").write_text("x\n" * 6)
    bad = {"round": 1, "a": "x", "b": "x", "c": "x", "d": "x"}
    (run / "history.jsonl").write_text(json.dumps(bad) + "\n")

    said = unreadable_note(read_runs([run]))

    assert said.endswith("d of round 1 in mine/history.jsonl; and 1 more.")
    assert "lines 1, 2, 3, 4, … of mine/diagnostics.jsonl" in read_runs([run])[0].left_out


def test_a_torn_last_line_is_no_loss(make_run):
    run = make_run(accuracies=[10.0, 20.0], status=None)
    for name in ("history.jsonl", "diagnostics.jsonl", "clients.jsonl"):
        with (run / name).open("a") as file:
            file.write('{"round": 3, "te')

    assert read_runs([run])[0].left_out == ()
    assert unreadable_note(read_runs([run])) == ""
