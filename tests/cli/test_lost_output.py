"""Output that nobody can read ends no training: `| head -1`, `> /dev/full`."""

import json
import os
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
FULL = Path("/dev/full")
LOST = "standard output cannot be written: No space left on device. Free some space."


@pytest.fixture
def first_line(tmp_path):
    """A pipe whose reader takes one line and goes away, and the line."""
    pipe, lines = tmp_path / ".pipe", []
    os.mkfifo(pipe)

    def read() -> None:
        with pipe.open() as reader:
            lines.append(reader.readline())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return pipe, lines


def status_of(folder):
    return json.loads((folder / "summary.json").read_text())["status"]


def test_a_run_goes_on_without_its_reader_and_has_nothing_to_say(cli, small, tmp_path, first_line):
    pipe, lines = first_line
    cli("run", *small, "--out", "mine", stdout=pipe).done()
    assert lines[0].startswith("fedblade on digits: ")
    assert status_of(tmp_path / "mine") == "finished"
    assert (tmp_path / "mine" / "model.safetensors").is_file()


def test_a_run_goes_on_when_the_disk_of_its_log_is_full_and_says_so(cli, small, tmp_path):
    answer = cli("run", *small, "--out", "mine", stdout=FULL)
    assert (answer.status, status_of(tmp_path / "mine")) == (0, "finished")
    assert answer.err == f"watch out: {LOST} Only what the command printed is lost; its work is done.\n"


@pytest.mark.thorough
def test_runs_side_by_side_go_on_without_a_reader(cli, small, tmp_path, first_line):
    pipe, _ = first_line
    cli("compare", *small, "--methods", "fedavg,fedetf", "--seeds", "1", "--jobs", "2", "--out", "mine", stdout=pipe)
    assert [status_of(tmp_path / "mine" / f"{name}-seed1") for name in ("fedavg", "fedetf")] == ["finished"] * 2
    assert (tmp_path / "mine" / "report.html").is_file()


@pytest.mark.parametrize("argv", [["list", "methods", "--json"], ["show", "fedblade"], ["partition"]])
def test_a_command_that_only_prints_fails_if_that_is_impossible(cli, argv):
    answer = cli(*argv, stdout=FULL)
    assert (answer.status, answer.err) == (1, f"error: {LOST}\n")


def test_a_command_that_only_prints_ends_quietly_without_its_reader(cli, first_line):
    pipe, lines = first_line
    cli("list", "methods", stdout=pipe).done()
    assert lines[0].startswith("ccvr ")
