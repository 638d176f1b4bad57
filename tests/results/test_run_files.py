"""One rule for broken lines, one owner of a folder at a time."""

import json
import logging
import os
import signal
import subprocess
import sys

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.results import HISTORY, RunDirectory, read_lines, run_folders

HOLD = (
    "import sys, pathlib, time\n"
    "from fedblade.results import RunDirectory\n"
    "directory = RunDirectory(pathlib.Path(sys.argv[1]))\n"
    "directory.open(resume=True)\n"
    "print('held', flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize(
    ("content", "rounds", "broken"),
    [
        (b"", [], []),
        (b'{"round": 1}\n{"round": 2}\n', [1, 2], []),
        (b'{"round": 1}\n{"round": 2}', [1, 2], []),
        (b'{"round": 1}\n{"rou', [1], []),
        (b'{"round": 1}\n{"rou\n', [1], [2]),
        (b'{"round": 1}\n{"rou\n\n{"round": 3}\n', [1, 3], [2]),
        (b'[1]\nnull\n3\n{"round": "4"}\n{"test_loss": 1.0}\n\xff{}\n', [], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_broken_line_is_left_out_and_counted_unless_it_is_being_written(tmp_path, content, rounds, broken):
    (tmp_path / HISTORY).write_bytes(content)
    found = read_lines(tmp_path / HISTORY, by_round=True)
    assert ([entry["round"] for entry in found.objects], found.broken) == (rounds, broken)


def test_a_file_that_is_not_there_has_no_lines(tmp_path):
    assert read_lines(tmp_path / HISTORY).objects == []


def test_a_run_goes_on_from_the_rounds_before_a_broken_one(tmp_path, caplog):
    one, two, four = ({"round": round_, "seconds": 0.5, "bytes_up": 1, "bytes_down": 1} for round_ in (1, 2, 4))
    (tmp_path / HISTORY).write_text(f'{json.dumps(one)}\n{json.dumps(two)}\n{{"rou\n{json.dumps(four)}\n')
    directory = RunDirectory(tmp_path)
    with caplog.at_level(logging.WARNING, "fedblade"):
        assert [row["round"] for row in directory.history()] == [1, 2, 4]
    assert f"line 3 of {tmp_path}/{HISTORY}" in caplog.text
    assert directory.rounds_on_record() == 2
    rounds, notes = directory.recover(HISTORY, 2)
    assert rounds == [one, two]
    (note,) = notes
    assert note.startswith(f"line 3 of '{tmp_path}/{HISTORY}' cannot be read. Odd lines are kept in")
    assert (tmp_path / f"{HISTORY}.set-aside").read_text() == '{"rou\n'
    assert directory.history() == [one, two]


@pytest.mark.parametrize("changed", [{"seconds": None}, {"bytes_up": "x"}, {"test_accuracy": "x"}, {"test_loss": []}])
def test_a_line_of_the_history_without_its_numbers_is_broken(tmp_path, changed):
    row = {"round": 1, "seconds": 0.5, "bytes_up": 1, "bytes_down": 1, "test_accuracy": None}
    (tmp_path / HISTORY).write_text(f"{json.dumps(row)}\n{json.dumps(row | {'round': 2} | changed)}\n")
    rounds, notes = RunDirectory(tmp_path).recover(HISTORY)
    assert rounds == [row]
    assert "line 2" in notes[0]


def test_a_run_is_found_once_it_has_written_more_than_its_configuration(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "config.toml").write_text("")
    (tmp_path / "a" / "b" / "history.jsonl").write_text("")
    assert list(run_folders(tmp_path)) == [tmp_path / "a" / "b"]
    (tmp_path / "a" / "partition.json").write_text("{}")
    assert list(run_folders(tmp_path)) == [tmp_path / "a"]


def test_a_folder_in_use_is_refused_until_its_owner_closes_it_or_is_killed(tmp_path):
    first, second = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "run")
    first.open(resume=True)
    with pytest.raises(Misconfigured, match=r"run' is in use by another process. Wait for it or choose another --out"):
        second.open(resume=True)
    first.close()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(Misconfigured, match="in use by another process"):
                second.open(resume=True)
        finally:
            os.kill(other.pid, signal.SIGKILL)
            other.wait()
    second.open(resume=True)
    second.close()
