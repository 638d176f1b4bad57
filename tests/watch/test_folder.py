"""What is read when: growing, torn, resumed, broken and missing files."""

import json
import shutil

import pytest

from fedblade.watch._folder import WatchedFolder

GRACE = 15.0


@pytest.fixture
def folder(run):
    return WatchedFolder(run.path)


def test_only_changes_are_read(run, folder):
    at = run.rounds(3)
    assert folder.refresh()
    assert not folder.refresh()
    run.rounds(4)
    assert folder.refresh()
    (watched,) = folder.runs
    assert watched.record.rounds_done == 4
    assert watched.changed("history.jsonl") == at + run.step


def test_a_torn_last_line_is_not_a_round_yet(run, folder):
    run.rounds(3, tail='{"round": 4, "test_acc')
    folder.refresh()
    assert (folder.runs[0].record.rounds_done, folder.problems) == (3, [])


def test_what_cannot_be_read_is_named_and_mends_itself(run, folder):
    run.rounds(3)
    run.write("partition.json", "[]", at=run.start + 50)
    folder.refresh()
    assert folder.runs[0].record.rounds_done == 3
    assert folder.runs[0].record.left_out == ("run/partition.json",)
    run.rounds(5)
    run.write("partition.json", "{}", at=run.start + 51)
    folder.refresh()
    assert (folder.runs[0].record.rounds_done, folder.runs[0].record.left_out) == (5, ())


def test_what_cannot_be_opened_keeps_what_was_read_before(run, folder):
    run.rounds(3)
    folder.refresh()
    (run.path / "history.jsonl").unlink()
    (run.path / "history.jsonl").mkdir()
    folder.refresh()
    assert folder.runs[0].record.rounds_done == 3
    assert "cannot be read" in folder.problems[0]


def test_a_broken_round_is_left_out_and_does_not_hide_the_others(run, folder):
    run.write("history.jsonl", '{"round": 1}\n{"rou\n{"round": 3}\n', at=run.start + 50)
    folder.refresh()
    assert folder.problems == []
    assert folder.runs[0].record.rounds_done == 3
    assert folder.runs[0].record.left_out == ("line 2 of run/history.jsonl",)


def test_a_broken_run_does_not_hide_the_others(make_run, tmp_path):
    good, bad = make_run("a"), make_run("b")
    good.rounds(2)
    bad.write("config.toml", "[[[", at=bad.start)
    folder = WatchedFolder(tmp_path / "runs")
    folder.refresh()
    assert [(watched.folder.name, watched.record.left_out) for watched in folder.runs] == [
        ("a", ()),
        ("b", ("b/config.toml",)),
    ]


def test_files_that_are_not_there_yet_and_folders_that_vanish(tmp_path, run):
    folder = WatchedFolder(tmp_path / "later")
    folder.refresh()
    assert folder.runs == []
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "config.toml").write_text("seed = 1\n")
    folder.refresh()
    assert folder.runs == []
    assert not folder.ended(0.0, GRACE)
    shutil.copytree(run.path, tmp_path / "later", dirs_exist_ok=True)
    folder.refresh()
    assert len(folder.runs) == 1
    shutil.rmtree(tmp_path / "later")
    assert folder.refresh()
    assert folder.runs == []


def test_what_is_below_a_run_or_hidden_is_not_looked_at(run, tmp_path):
    for place in (run.path / "checkpoints" / "x", tmp_path / ".trash"):
        place.mkdir(parents=True)
        (place / "history.jsonl").write_text(json.dumps({"round": 1}))
    folder = WatchedFolder(tmp_path)
    folder.refresh()
    assert [watched.folder for watched in folder.runs] == [run.path]


@pytest.mark.parametrize("status", ["finished", "interrupted", "failed"])
def test_a_run_with_a_summary_has_ended(run, folder, status):
    at = run.rounds(5)
    folder.refresh()
    assert not folder.ended(at, GRACE)
    at = run.end(status, 5, at=at)
    folder.refresh()
    assert folder.runs[0].status(at) == status
    assert folder.ended(at, GRACE)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_resumed_run_is_in_progress_although_the_old_summary_is_still_there(run, folder, status):
    at = run.end(status, 8, at=run.rounds(8))
    folder.refresh()
    at = run.rounds(8, at=at + 5)
    folder.refresh()
    assert folder.runs[0].status(at + 1) == "in progress"
    assert not folder.ended(at + 1, GRACE)
    at = run.rounds(5, at=at + 5)
    folder.refresh()
    assert (folder.runs[0].record.rounds_done, folder.runs[0].status(at + 1)) == (5, "in progress")
    at = run.end("finished", 9, at=run.rounds(9, at=at + 5))
    folder.refresh()
    assert folder.ended(at, GRACE)


def test_a_copy_whose_files_lost_their_order_is_not_taken_for_a_resumed_run(run, folder):
    run.end("interrupted", 8, at=run.start)
    at = run.rounds(8, at=run.start + 1)
    folder.refresh()
    assert folder.runs[0].status(at + 3600) == "interrupted"


def test_a_run_is_overdue_only_while_rounds_are_missing(run, folder):
    at = run.rounds(59)
    folder.refresh()
    assert [folder.runs[0].overdue(at + age) for age in (9.0, 11.0)] == [False, True]
    at = run.rounds(60)
    folder.refresh()
    assert not folder.runs[0].overdue(at + 1e6)


def test_a_folder_of_runs_waits_for_the_next_one(make_run, tmp_path):
    first = make_run("a", planned=5)
    at = first.end("finished", 5, at=first.rounds(5))
    folder = WatchedFolder(tmp_path / "runs")
    folder.refresh()
    assert [folder.ended(at + age, GRACE) for age in (1.0, 14.0, 16.0)] == [False, False, True]
    second = make_run("b", planned=5)
    later = second.rounds(1, at=at + 14)
    folder.refresh()
    assert not folder.ended(later + 16, GRACE)
    assert folder.focus(later).folder.name == "b"
    second.end("failed", 1, at=later)
    folder.refresh()
    assert folder.ended(later + 16, GRACE)


def test_of_runs_in_progress_the_one_written_last_is_looked_at(make_run, tmp_path):
    make_run("a").rounds(5, at=2_000_000.0)
    make_run("b").rounds(2, at=2_000_500.0)
    done = make_run("c")
    done.end("finished", 9, at=done.rounds(9, at=2_000_900.0))
    folder = WatchedFolder(tmp_path / "runs")
    folder.refresh()
    assert folder.focus(2_000_900.0).folder.name == "b"
