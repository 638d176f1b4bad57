"""`fedblade run --profile`: a table at the end, and two files beside the run's."""

import json
import re


def test_profile_prints_a_table_and_says_where_the_files_are(cli, small, tmp_path):
    answer = cli("run", *small, "--out", "mine", "--profile").done()
    assert answer.last == "mine"
    lines = answer.out.splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(r"stage +seconds +share +per round$", line))
    shown = dict(re.match(r"(\w+) +[\d.]+ +([\d.]+) %", line).groups() for line in lines[start + 1 : start + 11])
    assert list(shown)[-2:] == ["other", "all"]
    assert {"prepare", "plan", "load", "train", "sums", "server", "evaluate", "save"} <= shown.keys()
    shares = [float(share) for name, share in shown.items() if name != "all"]
    assert abs(sum(shares) - 100) < 1
    assert shown["all"] == "100.0"
    after = lines[start + 11 : start + 15]
    assert after[:2] == ["profile: mine/profile.json", "trace: mine/trace.json"]
    assert "chrome://tracing" in after[2]
    assert "ui.perfetto.dev" in after[2]
    assert "round 2" in after[3]
    assert max(map(len, lines[start : start + 15])) <= 80
    assert len(json.loads((tmp_path / "mine" / "profile.json").read_text())["rounds"]) == 3
    assert json.loads((tmp_path / "mine" / "trace.json").read_text())["traceEvents"]


def test_quietly_no_times_are_printed_and_the_files_are_there(cli, small, tmp_path):
    answer = cli("run", *small, "--out", "mine", "--profile", "--quiet").done()
    result, folder = answer.out.splitlines()
    assert result.startswith("fedblade: final accuracy ")
    assert folder == "mine"
    assert (tmp_path / "mine" / "trace.json").is_file()


def test_a_finished_run_has_nothing_left_to_time(cli, small, tmp_path):
    cli("run", *small, "--out", "mine").done()
    answer = cli("run", *small, "--out", "mine", "--resume", "--profile").done()
    assert "per round" not in answer.out
    assert not (tmp_path / "mine" / "profile.json").exists()
