"""`fedblade bench`: names, the table, JSON and Markdown, and what is said of rows that cannot run."""

import json
import re
import warnings

import pytest

from benchmarks import markdown, runner
from benchmarks.benchmark import Benchmark, Case, Result, Skipped, at_least, at_most
from benchmarks.fresh_process import CHECKOUT
from fedblade.core.errors import RunFailed

FAST = Case("a fast case", "one thing over another", at_least(2))
SMALL = Case("a small case", "a size that must stay small", at_most(1.2))
TIME = Case("a time", "seconds of something", unit="s")
HEAVY = Case("a heavy case", "something that needs what is not here", at_least(3))
FIELDS = {"name", "case", "ratio", "value", "unit", "goal", "met", "what", "medians", "values", "repetitions", "note"}


def measure(options):
    yield FAST.label, Result(3.0, {"ours s": 1.0, "theirs s": 3.0}, [2.9, 3.0, 3.1][: options.repetitions(3)])
    yield SMALL.label, Result(1.5)
    yield TIME.label, Result(0.25, note="on a whim")
    raise Skipped("needs a machine that is not here")


@pytest.fixture(autouse=True)
def known(monkeypatch):
    made = Benchmark("made", "made up", (FAST, SMALL, TIME, HEAVY), measure)
    monkeypatch.setattr(runner, "BENCHMARKS", {**runner.BENCHMARKS, "made": made})


@pytest.fixture
def bench(capsys):
    with warnings.catch_warnings():
        # typer still uses names that click has deprecated; the command line itself does not turn warnings into errors.
        warnings.simplefilter("ignore", DeprecationWarning)
        from fedblade.cli._main import exit_status

    def run(*arguments):
        status = exit_status(["bench", *arguments], debug=False)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_bare_installation_says_where_the_benchmarks_are(bench, monkeypatch, tmp_path):
    monkeypatch.setattr("fedblade.cli._bench.__file__", str(tmp_path / "site-packages/fedblade/cli/_bench.py"))
    monkeypatch.chdir(tmp_path)
    status, out, err = bench("made")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert [word for word in (str(tmp_path), "Clone the repository", "`fedblade bench`") if word not in err] == []
    monkeypatch.chdir(CHECKOUT)
    assert bench("made")[0] == 0, "the root of a checkout has them"


def test_benchmarks_use_public_modules_only():
    imported = re.compile(r"^\s*(?:from|import) (fedblade[\w.]*)", re.MULTILINE)
    for file in (CHECKOUT / "benchmarks").rglob("*.py"):
        assert "._" not in "".join(imported.findall(file.read_text(encoding="utf-8"))), file


def test_who_watches_is_told_what_is_measured(bench, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert bench("made")[2] == "made: made up …\n"


def test_json_has_a_row_for_every_case(bench):
    status, out, err = bench("made", "--json")
    rows = {row["case"]: row for row in json.loads(out)}
    assert status == 0
    assert err == "", "nobody watches"
    assert list(rows) == [FAST.label, SMALL.label, TIME.label, HEAVY.label]
    assert all(row.keys() == FIELDS | {"skipped", "hardware", "versions"} for row in rows.values())
    assert (rows[FAST.label]["ratio"], rows[FAST.label]["goal"], rows[FAST.label]["met"]) == (3.0, "≥ 2", True)
    assert (rows[SMALL.label]["ratio"], rows[SMALL.label]["goal"], rows[SMALL.label]["met"]) == (1.5, "≤ 1.2", False)
    assert (rows[TIME.label]["ratio"], rows[TIME.label]["value"], rows[TIME.label]["met"]) == (None, 0.25, None)
    assert rows[HEAVY.label]["skipped"] == "needs a machine that is not here"
    assert (rows[HEAVY.label]["value"], rows[HEAVY.label]["met"]) == (None, None)
    assert rows[FAST.label]["repetitions"] == 3
    assert {"torch", "fedblade", "python"} <= rows[FAST.label]["versions"].keys()
    assert "cores" in rows[FAST.label]["hardware"]


def test_the_table_fits_a_terminal_and_names_what_was_skipped(bench):
    status, out, _ = bench("made")
    lines = out.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:6]] == ["made"] * 4
    assert lines[2].split()[-3:] == ["≥", "2", "yes"]
    assert lines[3].split()[-3:] == ["≤", "1.2", "no"]
    text = " ".join(out.split())
    for words in (FAST.what, "ours s 1; theirs s 3", "3 repetitions from 2.9 to 3.1", "on a whim",
                  "skipped: needs a machine that is not here (a heavy case)"):  # fmt: skip
        assert words in text


def test_every_real_label_fits_its_column():
    for benchmark in runner.BENCHMARKS.values():
        assert len(benchmark.name) <= 10
        assert len({case.label for case in benchmark.cases}) == len(benchmark.cases)
        for case in benchmark.cases:
            assert len(case.label) <= 33, case.label


def test_repeat_reaches_the_benchmark(bench):
    (row, *_) = json.loads(bench("made", "--json", "--repeat", "2")[1])
    assert row["repetitions"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digtis"], ["unknown benchmark 'digtis'", "'digits'"]),
        (["xyzzy"], ["xyzzy", "Choose from", "cifar"]),
        (["made", "--device", "tpu"], ["tpu", "cuda"]),
        (["made", "--repeat", "0"], ["--repeat", "0"]),
    ],
)
def test_mistakes_are_refused_in_one_line(bench, arguments, words):
    status, out, err = bench(*arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert [word for word in words if word not in err] == []


def test_a_side_that_breaks_is_listed_with_its_last_words():
    def broken(_options):
        raise RunFailed("it fell over")
        yield

    (row,) = Benchmark("broken", "breaks", (FAST,), broken).run(None)
    assert row.as_dict()["skipped"] == "failed: it fell over"


def test_sides_that_cannot_be_compared_meet_no_goal():
    def unequal(_options):
        yield FAST.label, Result(30.0, comparable=False)

    (row,) = Benchmark("unequal", "compares pears", (FAST,), unequal).run(None)
    assert (row.as_dict()["ratio"], row.met) == (30.0, None)


def test_markdown_has_the_command_of_each_row(bench):
    lines = bench("made", "--markdown")[1].splitlines()
    assert {line.count("|") for line in lines} == {8}
    assert lines[2].startswith("| made | a fast case | ≥ 2 | 3.00× | yes |")
    assert lines[2].endswith("| `fedblade bench made` |")
    assert "skipped: needs a machine that is not here" in lines[5]


def test_files_are_merged_and_measured_rows_win(bench, tmp_path):
    first = json.loads(bench("made", "--json")[1])
    second = [row | {"value": None, "skipped": "elsewhere"} for row in first]
    second[3] |= {"value": 4.0, "ratio": 4.0, "skipped": None, "met": True, "hardware": "a large machine"}
    for name, rows in (("first.json", first), ("second.json", second)):
        (tmp_path / name).write_text(json.dumps(rows))
    rows = markdown.merged([tmp_path / "first.json", tmp_path / "second.json"])
    assert [row["value"] for row in rows] == [3.0, 1.5, 0.25, 4.0]
    text = markdown.document(rows)
    assert "a large machine" in text
    assert text.count("| made |") == 4
