"""The page: numbers, honesty about unfinished runs, safety, form."""

import importlib.resources
import json
import os
import random
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scipy.stats import t

from fedblade.core.errors import Misconfigured
from fedblade.hardness import measure
from fedblade.report import build_report
from fedblade.report._page import SCRIPTS
from support.report_runs import diagnose, label_counts

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Checks that elements nest, and collects cells, ids and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append((dict(self.tags[-1][1]), data))
        elif "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        """The first row of any table that is headed by `name`."""
        return next(cells for cells in self.rows if cells[0] == name)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def report(tmp_path):
    """Build the report of everything below `runs` and read it back."""

    def build(**options) -> Reader:
        return read(build_report([tmp_path / "runs"], tmp_path / "out" / "report.html", **options))

    return build


def test_calibrated_models_carry_a_mark_that_a_footnote_explains(make_run, report, tmp_path):
    calibrated = {"calibrated": True, "final_accuracy": 85.0, "accuracy": 85.0}
    make_run("ccvr", accuracies=[60.0, 70.0], summary=calibrated)
    make_run("fedavg", accuracies=[60.0, 80.0])

    page = report()
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")

    assert page.row("ccvr")[1:3] == ["1st 85.00†", "1st 85.00†"]
    assert page.row("fedavg")[1:3] == ["2nd 70.00", "2nd 80.00"]
    assert text.count("† after calibration at the end of the run") == 2
    assert "or after calibration at the end of the run: ccvr, 85.00 % over 1 seed, 15.00 points above fedavg." in text


def test_without_calibrated_models_there_is_no_such_footnote(make_run, report, tmp_path):
    make_run("fedavg", accuracies=[60.0, 80.0])
    make_run("fedprox", accuracies=[60.0, 70.0])
    report()
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "†" not in text
    assert "after calibration" not in text


def test_result_table_shows_independent_means_spreads_and_places(make_run, report):
    values = {
        "fedavg": [[60.0] * 10 + [62.0], [64.0] * 10 + [68.0]],
        "fedetf": [[70.0] * 11, [74.0] * 11],
        "fedblade": [[80.0, 90.0], [84.0, 94.0]],
    }
    for method, seeds in values.items():
        for seed, accuracies in enumerate(seeds):
            make_run(method, seed, accuracies=accuracies, planned=11)

    page = report(threshold=70.0)

    for method, seeds in values.items():
        last10 = [statistics.fmean(a[-10:]) for a in seeds]
        final = [a[-1] for a in seeds]
        cells = page.row(method)
        assert cells[4] == "2"
        for cell, found in ((cells[1], last10), (cells[2], final)):
            assert f"{sum(found) / 2:.2f} ± {abs(found[0] - found[1]) / 2**0.5:.2f}" in cell
        assert [c.split()[0] for c in cells[1:3] if c[0] in "12" and c[1:3] in ("st", "nd")] == {
            "fedavg": [],
            "fedetf": ["2nd", "2nd"],
            "fedblade": ["1st", "1st"],
        }[method]
    assert [page.row(m)[3] for m in values] == ["11+", "1", "1"]
    costs = next(cells for cells in page.rows if len(cells) == 6 and cells[:2] == ["fedblade", "stacked"])
    assert costs[2:] == ["0.250", "1.20", "1 kB / 2.5 kB", "4 kB / 10 kB"]
    assert "fedblade, 87.00 % over 2 seeds, 15.00 points above fedetf." in page.text


def test_differences_are_taken_seed_by_seed_and_an_interval_says_whether_they_hold(make_run, report):
    """The accuracies differ much over seeds; what counts is that b is always ahead of a, and c not of b."""
    for seed, (shift, ahead) in enumerate(((0.0, 1.0), (6.0, -2.0), (9.0, 2.0))):
        make_run("a", seed, accuracies=[70.0 + shift])
        make_run("b", seed, accuracies=[80.0 + shift + seed / 10])
        make_run("c", seed, accuracies=[80.0 + shift + ahead])

    page = report()

    half = t.ppf(0.975, 2) * statistics.stdev([1.0, -2.1, 1.8]) / 3**0.5
    assert (
        f"That is not settled: the 95 % interval of the difference is −{half - 0.2333:.2f} to +{half + 0.2333:.2f}"
        in (page.text)
    )
    listed = [cells for cells in page.rows if len(cells) == 5 and cells[1] == "c"]
    assert [cells[0] for cells in listed] == ["a", "b"]
    assert listed[1][2:] == ["−0.23", f"−{half + 0.2333:.2f} to +{half - 0.2333:.2f}", "3"]
    assert "How sure is the order?" in page.text


def test_with_one_seed_no_interval_is_given(make_run, report):
    make_run("a", 1, accuracies=[80.0])
    make_run("b", 1, accuracies=[81.0])

    page = report()

    assert "One seed cannot tell whether this would hold for other seeds." in page.text
    assert "How sure is the order?" not in page.text


def test_run_table_lists_every_run(make_run, report):
    make_run("fedavg", 4, accuracies=[50.0, 70.0, 60.0])

    page = report()

    heads = next(cells for cells in page.rows if "status" in cells)
    assert "best, % (optimistic)" in heads
    cells = next(cells for cells in page.rows if "finished" in cells)
    assert cells == ["fedavg", "4", "finished", "3", "60.00", "60.00", "70.00", "2", "0.900"]


def test_a_single_run_has_no_spread_and_no_place(make_run, report):
    make_run("fedavg", accuracies=[50.0, 60.0])

    page = report()

    assert page.row("fedavg")[1:3] == ["55.00", "60.00"]
    assert "fedavg has a test accuracy of 55.00 % over all 2 rounds, and 60.00 % in the last round, single run." in (
        page.text
    )
    assert "1st" not in page.text


def test_unfinished_runs_are_announced_and_not_ranked(make_run, report):
    make_run("fedavg", 1, accuracies=[50.0])
    make_run("fedetf", 1, accuracies=[60.0])
    make_run("fedblade", 1, accuracies=[99.0, 99.0], planned=40, status=None)
    make_run("fedblade", 2, accuracies=[98.0], planned=40, status="failed")

    page = report()

    assert "2 of 4 runs not finished (1 in progress and 1 failed)" in page.text
    assert page.row("fedblade0 of 2 finished")[1] == "98.50 ± 0.71"
    assert ["fedblade", "1", "in progress", "2 of 40", "99.00", "99.00", "99.00", "1", "–"] in page.rows


def test_nothing_evaluated_and_no_partition_still_make_a_page(make_run, report):
    run = make_run(accuracies=[None, None])
    (run / "partition.json").unlink()

    page = report()

    assert page.text.count("No round has been evaluated yet") == 1
    assert "No run has stored its partition." in page.text
    assert page.row("fedavg")[1:3] == ["–", "–"]


def test_not_a_number_anywhere_still_makes_a_page(make_run, report):
    run = make_run(summary={k: float("nan") for k in ("final_accuracy", "last10_accuracy", "seconds", "bytes_up")})
    lines = [{"round": r, "test_accuracy": float("nan"), "test_loss": float("inf"), "seconds": None} for r in (1, 2)]
    (run / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))

    page = report()

    assert not re.search(r"\b(nan|inf)\b", page.text, re.IGNORECASE)
    assert page.row("fedavg")[1:3] == ["–", "–"]


def test_different_lengths_and_evaluation_gaps_share_a_page(make_run, report):
    make_run("a", 1, rounds=50)
    make_run("a", 2, rounds=20, planned=50, status="interrupted")
    make_run("b", 1, accuracies=[None, 50.0, None, 60.0])

    page = report()

    assert page.row("b")[1:3] == ["55.00", "60.00"]
    assert "compare accuracies only between groups that agree" in page.text


def test_configuration_shows_common_keys_once_and_differing_keys_per_group(make_run, report):
    make_run("fedprox", 1, knobs="mu = 0.01")
    make_run("fedprox", 2, knobs="mu = 0.01")
    make_run("fedprox", 1, knobs="mu = 0.1")

    page = report()

    assert [cells for cells in page.rows if cells[0] == "method.mu"] == [["method.mu", "0.01", "0.1"]]
    assert [cells for cells in page.rows if cells[0] == "local.epochs"] == [["local.epochs", "3"]]
    assert page.row("key") == ["key", "fedprox (mu=0.01)", "fedprox (mu=0.1)"]
    assert page.row("torch") == ["torch", "2.13.0"]


def test_a_repeated_seed_is_announced(make_run, report):
    make_run("fedavg", 1)
    make_run("fedavg", 1)

    assert "fedavg: seed 1 occurs more than once" in report().text


def test_personal_accuracies_are_marked(make_run, report):
    make_run("fedper", summary={"accuracy_of": "personal"})
    make_run("fedavg")

    page = report()

    assert page.row("fedperpersonal models")
    assert "average the clients' personal models" in page.text


def test_accuracies_on_validation_samples_are_marked_and_said_to_be_no_test_accuracies(make_run, tmp_path):
    make_run("fedavg", accuracies=[50.0], knobs="[evaluation]\non = 'validation'", counts=[[1, 2], [3, 4]])
    make_run("fedavg", accuracies=[40.0], counts=[[2, 2], [3, 4]])

    html = build_report([tmp_path / "runs"], tmp_path / "report.html").read_text(encoding="utf-8")

    assert html.count('<span class="tag">validation</span>') == 1
    assert "They are no test accuracies, and are ranked among themselves." in html
    assert "dirichlet alpha 0.1, without the validation samples, seed 1" in html
    assert "differ in data" not in html
    assert '<p class="finding">fedavg (on=test) has a test accuracy of 40.00 %' in html


def test_notes_beyond_the_second_are_folded_so_that_the_chart_stays_in_the_first_screen(make_run, tmp_path):
    for index in range(5):
        make_run("fedprox", knobs=f"mu = 0.{index}", summary={"flags": [f"fault {index}"]})

    html = build_report([tmp_path / "runs"], tmp_path / "report.html").read_text(encoding="utf-8")

    assert re.findall(r'<p class="notice" role="note">Watch out, [^:]*: (fault \d)', html) == ["fault 0", "fault 1"]
    folded = re.search(r'<details class="notice" role="note">(.*?)</details>', html, re.DOTALL)
    assert folded is not None
    assert "<summary>3 more notes on these results</summary>" in folded[1]
    assert re.findall(r"fault \d", folded[1]) == ["fault 2", "fault 3", "fault 4"]


HOSTILE = '<script>alert("x")</script>&\'\ud800\x00'


def test_everything_from_files_is_escaped(make_run, tmp_path, report):
    run = make_run("fedavg", summary={"method": HOSTILE, "model": HOSTILE, "engine": HOSTILE, "status": HOSTILE})
    (run / "config.toml").write_text(
        "seed = 1\n[method]\nname = 'x'\nnote = '<script>1</script>'\n"
        "['<script>']\na = 1\n[partition]\nalpha = '<script>'\n"
    )
    stored = json.loads((run / "partition.json").read_text())
    (run / "partition.json").write_text(json.dumps(stored | {"class_names": [HOSTILE] * 10}))
    make_run("fedavg")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"versions": {HOSTILE: HOSTILE}}))

    page = report(title=HOSTILE)

    raw = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in raw
    assert "<script>1" not in raw
    assert page.text.count('<script>alert("x")</script>') >= 8
    assert {tag for tag, _ in page.tags} & {"iframe", "object", "embed", "link", "base", "form"} == set()
    run_by_browsers = [content for given, content in page.scripts if given.get("type") != "application/json"]
    assert [content.strip() for content in run_by_browsers] == [own_script().strip()]
    assert raw.lower().count("</script") == len(page.scripts)
    names = next(content for given, content in page.scripts if given.get("id") == "methods")
    assert any('<script>alert("x")</script>' in label for label in json.loads(names))


def own_script() -> str:
    folder = importlib.resources.files("fedblade.report")
    return "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)


def test_the_page_forbids_itself_to_load_anything(make_run, report):
    make_run()

    given = [dict(given) for tag, given in report().tags if tag == "meta"]

    policy = next(meta["content"] for meta in given if meta.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert rules["script-src"] == rules["style-src"] == "'unsafe-inline'"


def test_the_page_stands_alone_and_is_accessible(make_run, tmp_path, report):
    for method in ("fedavg", "fedblade"):
        for seed in (1, 2, 3):
            make_run(method, seed)

    page = report()

    raw = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "://" not in raw
    assert not re.search(r"url\(|@import|<link|\ssrc=", raw)
    assert len(page.ids) == len(set(page.ids))
    attributes = [pair for _, given in page.tags for pair in given.items()]
    assert ("lang", "en") in attributes
    assert ("name", "viewport") in attributes
    pictures = [given for tag, given in page.tags if tag == "svg" and given.get("role") == "img"]
    assert len(pictures) == 2 * (2 + 3) + 1
    for given in pictures:
        assert set((given["aria-labelledby"] or "").split()) <= set(page.ids)
    headings = [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings == ["h1"] + ["h2"] * 10
    assert "prefers-color-scheme: dark" in raw


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb` as the web content accessibility guidelines define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_the_paper(make_run, tmp_path, scheme):
    make_run()
    html = build_report([tmp_path / "runs"], tmp_path / "report.html").read_text()
    # The colours of lines and the style sheet both have a block for light and one for dark backgrounds.
    blocks = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    assert len(blocks) == 4
    used = blocks[::2] + (blocks[1::2] if scheme else [])
    colours = {name: value for block in used for name, value in re.findall(r"--([\w-]+): ([^;]+);", block)}

    def colour(name: str) -> str:
        value = colours[name]
        return colours[value[len("var(--") : -1]] if value.startswith("var") else value

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colour(one)), luminance(colour(other))))
        return (high + 0.05) / (low + 0.05)

    for paper in ("paper", "panel"):
        assert min(contrast(ink, paper) for ink in ("ink", "muted", "accent")) >= 4.5
    assert contrast("warn", "warn-paper") >= 4.5
    assert min(contrast(f"s{index}", "paper") for index in range(7)) >= 2


def test_default_and_given_titles(make_run, tmp_path):
    make_run("fedavg")
    make_run("fedblade")

    default = build_report([tmp_path / "runs"], tmp_path / "a.html").read_text()
    given = build_report([tmp_path / "runs"], tmp_path / "b.html", title="Table 3").read_text()

    assert "<title>fedavg and fedblade on digits · fedblade report</title>" in default
    assert "<title>Table 3 · fedblade report</title>" in given
    assert "<h1>Table 3</h1>" in given


@pytest.mark.thorough
def test_ten_long_methods_with_all_diagnostics_of_a_hundred_classes_stay_small(make_run, tmp_path):
    """Seeds give bands and label maps; arrays are averaged over them, so those of one seed take as much room.

    No more rounds of arrays are shown than these, so that a run that diagnoses every round makes no larger page.
    """
    for seed in (1, 2, 3):
        rng = random.Random(seed)
        counts = [[rng.randrange(9) for _ in range(100)] for _ in range(100)]
        for index in range(10):
            run = make_run(f"method{index}", seed, rounds=200, counts=counts)
            first = seed == 1 and index == 0
            diagnose(run, quality=index / 10, classes=100, dim=1280, every=10 if first else None)
            if first:
                arrays = (run / "diagnostics.jsonl").read_text()
            if seed == 1:
                (run / "diagnostics.jsonl").write_text(arrays)

    out = build_report([tmp_path / "runs"], tmp_path / "report.html")

    assert 3_000_000 < out.stat().st_size < 5_000_000


@pytest.mark.parametrize(("clients", "shown"), [(2, 6), (300, 2)])
def test_label_maps_of_many_seeds_keep_to_their_room(make_run, report, clients, shown):
    for seed in range(8):
        make_run(seed=seed, rounds=1, counts=[[seed + 1] + [0] * 99] * clients)

    page = report()

    assert len({name for name in page.ids if re.fullmatch(r"label-map-\d-wide-title", name)}) == shown
    assert f"{8 - shown} more partitions are not shown here." in page.text


def test_the_hardness_of_each_split_is_shown_for_each_size_of_cohorts(make_run, report):
    """Stored numbers are shown as stored; without them the counts are measured; without counts there is no map."""
    counts = label_counts(1)
    for _ in range(2):
        make_run(seed=1, rounds=1, counts=counts)
    config = make_run(seed=1, rounds=1, counts=counts) / "config.toml"
    config.write_text(config.read_text().replace("clients_per_round = 10", "clients_per_round = 5"))
    large = make_run(seed=3, rounds=1) / "partition.json"
    stored = replace(measure(label_counts(3), 10), clients=1000, population=5000)
    large.write_text(json.dumps({"digest": "large", "counts": None, "hardness": stored.stored()}))

    page = report()

    rows = [row for row in page.rows if row and row[-1] in ("mild", "moderate", "hard")]
    measured = [measure(counts, 5), measure(counts, 10), stored]
    assert [row[:2] for row in rows] == [
        ["dirichlet alpha 0.1, seed 1", "5"],
        ["dirichlet alpha 0.1, seed 1", "10"],
        ["dirichlet alpha 0.1, seed 3", "10"],
    ]
    for row, each in zip(rows, measured, strict=True):
        assert row[2] == f"{each.effective_classes:.2f} of 10"
        assert row[5:] == [f"{each.missing_classes:.2f} of 10", f"{each.cohort_distance:.2f}", each.level]
        assert each.sentence() in page.text
    assert "label-map-wide-title" in page.ids  # one map only


def test_a_split_without_samples_or_cohorts_has_no_hardness(make_run, report):
    make_run(seed=1, rounds=1, counts=[[0, 0], [0, 0]])
    config = make_run(seed=2, rounds=1) / "config.toml"
    config.write_text(config.read_text().replace("clients_per_round = 10", ""))

    assert "effective classes" not in report().text


def test_writing_replaces_the_old_report_and_leaves_nothing_else(make_run, tmp_path):
    make_run()
    out = tmp_path / "out" / "report.html"
    out.parent.mkdir()
    out.write_text("old")
    old_mask = os.umask(0o022)
    try:
        written = build_report([tmp_path / "runs"], out)
    finally:
        os.umask(old_mask)

    assert written == out
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert out.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_keeps_the_old_report(make_run, tmp_path, monkeypatch):
    make_run()
    out = tmp_path / "out" / "report.html"
    out.parent.mkdir()
    out.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(Misconfigured, match="disk full"):
        build_report([tmp_path / "runs"], out)

    assert [(p.name, p.read_text()) for p in out.parent.iterdir()] == [("report.html", "old")]


def test_a_target_that_cannot_be_written_is_refused(make_run, tmp_path):
    run = make_run()
    with pytest.raises(Misconfigured, match=r"is a folder; expected a file to write"):
        build_report([run], tmp_path)
    with pytest.raises(Misconfigured, match=r"cannot write .*Choose another place"):
        build_report([run], run / "config.toml" / "report.html")


def test_the_report_does_not_import_torch():
    code = "import sys, fedblade.report; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
