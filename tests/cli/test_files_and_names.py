"""Files that cannot be read or written and names that are no text: a worded error, or a run like any other."""

import json
import shutil

import pytest

LONG = "a" * 300
NO_TEXT = "run\udcff"
"""A name that is not UTF-8, as Python gives it."""


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--out", LONG],
        ["run", LONG],
        ["run", "--set", "dataset=arrays", "--set", f"dataset.path={LONG}.npz"],
        ["compare", "--methods", "fedavg", "--out", LONG],
        ["report", LONG],
        ["watch", LONG],
        ["reproduce", LONG],
        ["flower", "up", LONG],
    ],
    ids=lambda argv: " ".join(argv[:2]).replace(LONG, ""),
)
def test_a_name_that_is_too_long_is_refused(cli, argv):
    message = cli(*argv).mistake()
    assert message.endswith("File name too long. Choose a shorter name.")
    assert LONG in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"rounds = 3 # \xff\n", "'mine.toml' cannot be read as UTF-8 text"),
        (b"rounds = 3 \x00\n", "'mine.toml' is not valid TOML"),
        (b"", "dataset.name is None"),
    ],
)
def test_a_configuration_that_is_no_text_is_refused(cli, tmp_path, content, said):
    (tmp_path / "mine.toml").write_bytes(content)
    assert said in cli("run", "mine.toml").mistake()


def test_a_folder_is_no_configuration(cli, tmp_path):
    (tmp_path / "mine.toml").mkdir()
    assert "'mine.toml' is a folder; expected a config file" in cli("run", "mine.toml").mistake()


def test_a_configuration_may_begin_with_a_byte_order_mark(cli, small, tmp_path):
    cli("run", *small, "--set", "method=fedavg", "--out", "first").done()
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "first" / "config.toml").read_bytes())
    cli("run", "mine.toml", "--out", "second").done()
    config = (tmp_path / "second" / "config.toml").read_bytes()
    assert config == (tmp_path / "first" / "config.toml").read_bytes()


@pytest.mark.parametrize("setting", ["dataset.path=\udcff", "\udcff=3"])
def test_a_setting_that_is_no_text_is_refused(cli, setting):
    assert "is not UTF-8 text" in cli("run", "--set", setting).mistake()


def test_a_folder_whose_name_is_no_text_is_like_any_other(cli, small, tmp_path):
    changed = [*small, "--set", "method=scaffold"]
    assert cli("run", *changed, "--out", NO_TEXT).done().last == NO_TEXT
    (tmp_path / NO_TEXT / "summary.json").unlink()
    (tmp_path / NO_TEXT / "model.safetensors").unlink()
    assert "going on after round 3" in cli("run", *changed, "--out", NO_TEXT, "--resume").done().out
    assert cli("report", NO_TEXT).done().last == f"{NO_TEXT}/report.html"
    cli("run", *changed, "--out", "plain").done()
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in (NO_TEXT, "plain")]
    assert same[0] == same[1]


@pytest.mark.parametrize("place", ["/dev/null/mine", "/proc/mine"])
def test_a_place_where_nothing_can_be_written_is_refused(cli, small, place):
    assert f"cannot make the folder '{place}'" in cli("run", *small, "--out", place).mistake()


def test_a_copy_beside_the_checkpoints_is_no_checkpoint(cli, small, tmp_path):
    cli("run", *small, "--out", "mine").done()
    checkpoints = tmp_path / "mine" / "checkpoints"
    shutil.copy(checkpoints / "round-000003.safetensors", checkpoints / "round-000003 (copy).safetensors")
    (tmp_path / "mine" / "summary.json").unlink()
    assert "going on after round 3" in cli("run", "--resume", "--out", "mine").done().out
    assert json.loads((tmp_path / "mine" / "summary.json").read_text())["status"] == "finished"


def test_a_configuration_that_is_no_text_is_made_again_from_the_record_or_named(cli, small, tmp_path):
    cli("run", *small, "--out", "mine").done()
    config = tmp_path / "mine" / "config.toml"
    before = config.read_bytes()
    config.write_bytes(b"seed = 1 # \xff\n")
    assert "since the run had finished: config.toml" in cli("run", "--resume", "--out", "mine").done().out
    assert config.read_bytes() == before
    config.write_bytes(b"seed = 1 # \xff\n")
    (tmp_path / "mine" / "folder.json").unlink()
    answer = cli("run", "--resume", "--out", "mine")
    assert answer.status in (1, 2)
    assert answer.err.startswith("error: 'mine/config.toml' cannot be read: 'utf-8' codec can't decode")


@pytest.mark.parametrize("name", ["summary.json", "partition.json", "metrics.json", "config.toml"])
def test_a_report_shows_what_is_left_of_a_damaged_folder(cli, small, tmp_path, name):
    cli("run", *small, "--out", "mine").done()
    (tmp_path / "mine" / name).write_bytes(b"\xff{")
    answer = cli("report", "mine")
    assert (answer.status, answer.last) == (0, "mine/report.html")
    assert answer.err == f"watch out: Left out, because it cannot be read: mine/{name}.\n"
    assert f"cannot be read: mine/{name}." in (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["history.jsonl", "diagnostics.jsonl", "folder.json"])
def test_a_report_leaves_out_what_it_cannot_open(cli, small, tmp_path, name):
    cli("run", *small, "--out", "mine").done()
    cli("run", *small, "--out", "whole").done()
    (tmp_path / "mine" / name).unlink()
    (tmp_path / "mine" / name).mkdir()
    answer = cli("report", "mine", "whole")
    assert (answer.status, answer.last) == (0, "mine/report.html")
    assert f"Left out, because it cannot be read: mine/{name}." in answer.err


def test_commands_in_messages_can_be_pasted(cli, small, tmp_path):
    out = cli("run", *small, "--out", "my run").done().out
    assert "report: fedblade report 'my run'" in out
    (tmp_path / "my run" / "history.jsonl").write_text("")
    assert "`fedblade run --resume --out 'my run'` mends what it can" in cli("report", "my run").err
    cli("run", "--resume", "--out", "my run").done()
    assert cli("report", "my run").err == ""
    assert "`fedblade run quickstart --resume --out 'my typo'`" in cli("run", "--resume", "--out", "my typo").mistake()
