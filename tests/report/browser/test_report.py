"""The report in Chromium: no errors, no requests, working controls, nothing on top of anything else."""

import csv
import html
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fedblade.report import build_report
from support.report_runs import diagnose, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENS = {390: 844, 1280: 800}
"""The heights of a telephone and of a small laptop by their widths."""
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "a ship with a long name", "truck"]
METHODS = ("fedavg", "fedblade", "fedprox (mu=0.01, a rather long label)")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: the page of the report was not tried in a browser"
)


def browse(page: Path, profile: Path) -> str:
    """The document as Chromium leaves it."""
    command = [
        CHROMIUM or "",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--window-size=2000,1200",
        "--virtual-time-budget=8000",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for index, method in enumerate(METHODS):
        for seed in (1, 2):
            run = write_run(folder / "runs", method, seed, rounds=30)
            diagnose(run, quality=0.3 + 0.3 * index, every=3)
            stored = json.loads((run / "partition.json").read_text())
            (run / "partition.json").write_text(json.dumps(stored | {"class_names": CLASSES}))
    return build_report([folder / "runs"], folder / "report.html")


@pytest.fixture(scope="module")
def seen(report: Path) -> dict[int, dict[str, Any]]:
    """What a script inside the page finds, by the width of the page."""
    text = report.read_text(encoding="utf-8")
    watch = (
        "<script>window.reportErrors = [];"
        "addEventListener('error', (e) => reportErrors.push(String(e.message)));"
        "addEventListener('securitypolicyviolation', (e) => reportErrors.push(e.violatedDirective));</script>"
    )
    check = f"<script>{(Path(__file__).parent / 'check.js').read_text(encoding='utf-8')}</script>"
    (report.parent / "checked.html").write_text(
        text.replace("<title>", watch + "<title>", 1).replace("</body>", check + "</body>", 1), encoding="utf-8"
    )
    # A window cannot be as narrow as a telephone; a frame in it can.
    frames = "".join(f'<iframe src="checked.html" width="{w}" height="{h}"></iframe>' for w, h in SCREENS.items())
    collect = (
        "addEventListener('message', (e) => { const p = document.createElement('pre'); p.textContent = e.data;"
        " document.body.append(p); })"
    )
    around = report.parent / "frames.html"
    around.write_text(f"<body><script>{collect}</script>{frames}</body>", encoding="utf-8")
    dumped = browse(around, report.parent / "profile")
    results = [json.loads(html.unescape(each)) for each in re.findall(r"<pre>(.*?)</pre>", dumped, re.DOTALL)]
    return {found["width"]: found for found in results}


@pytest.fixture(params=SCREENS)
def found(request: pytest.FixtureRequest, seen: dict[int, dict[str, Any]]) -> dict[str, Any]:
    assert set(seen) == set(SCREENS)
    return seen[request.param]


def test_it_loads_without_errors_or_requests(found):
    assert found["errors"] == []
    assert found["requests"] == []


def test_the_first_screen_has_the_finding_the_chart_and_the_table(found):
    assert found["first"] == {"finding": True, "chart": True, "rows": len(METHODS)}


def test_tables_are_sorted_by_their_headings(found):
    (down, falling), (up, rising) = found["down"], found["up"]

    means = [float(text.split()[0]) for text in down]
    assert means == sorted(means, reverse=True)
    assert up == down[::-1]
    assert (falling, rising) == ("descending", "ascending")
    assert found["byName"] == [sorted(METHODS), 1]


def test_charts_and_tables_are_saved_as_files(found):
    saved = dict(found["saved"])

    picture = ET.fromstring(saved["test-accuracy-over-rounds.svg"].partition(",")[2])
    written = {"".join(node.itertext()) for node in picture.iter() if node.tag.endswith("}text")}
    assert {"Test accuracy over rounds", "round", *METHODS} <= written
    points = list(csv.reader(saved["test-accuracy-over-rounds.csv"].partition(",")[2].splitlines()))
    assert points[0] == ["line", "round", "test accuracy, %"]
    assert len(points) == 1 + 30 * len(METHODS)
    assert saved["test-accuracy-over-rounds.png"] > 10_000
    assert saved["fedavg.png"] > 3_000
    assert 'stroke="#0072b2"' in saved["fedavg.svg"]
    table = list(csv.reader(saved["comparison-over-seeds.csv"].partition(",")[2].splitlines()))
    assert [row[0] for row in table] == ["method", *sorted(METHODS)]
    assert [row["label"] for row in csv.DictReader(found["file"].splitlines())] == list(METHODS)


def test_nothing_overlaps_or_leaves_its_place(found):
    assert found["overflow"] <= 0
    assert found["texts"] == []
    assert found["outside"] == []
    assert found["blocks"] == []
    assert found["smallest"] > 9.5


def test_a_switch_hides_a_method_in_all_charts_and_shows_it_again(found):
    before = found["lines"]
    assert min(before) > 20
    assert found["linesOff"] == [before[0], 0]
    assert found["panelsOff"] == 0
    assert found["linesOn"] == before


def test_the_pointer_shows_the_values_of_all_shown_methods(found):
    assert all(method in found["tip"] for method in METHODS)
    assert re.search(r"round 1\d\b", found["tip"])
    assert found["dots"] == len(METHODS)
    assert METHODS[1] not in found["tipOff"]
    assert METHODS[0] in found["tipOff"]
    assert found["tipGone"]


def test_arrow_keys_and_heat_maps_show_values_too(found):
    assert re.search(r"round 1\d\b", found["tipByKey"])
    assert re.search(r"cosine\s+-?[01]\.\d\d", found["tipOfMap"])


def test_the_slider_changes_the_pictures_of_its_part_and_finds_back(found):
    assert len(found["frames"]) == 3
    for part in found["frames"]:
        assert part == {"shown": True, "moved": True, "first": "3", "last": "30", "back": True}


def test_without_its_script_the_pictures_are_there_and_the_controls_are_not(report):
    text = report.read_text(encoding="utf-8")
    start, end = text.rindex("<script>"), text.rindex("</body>")
    look = """<script>
      const shown = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.getClientRects().length);
      const pre = document.createElement("pre");
      pre.textContent = JSON.stringify({
        lines: shown("path.line").length, maps: shown(".heat path").length, rounds: shown(".pick output").length,
        controls: shown("input, button").length, rows: shown(".lead-in tbody tr").length,
        chips: shown(".chip").length });
      document.body.append(pre);</script>"""
    plain = report.parent / "plain.html"
    plain.write_text(text[:start] + look + text[end:], encoding="utf-8")

    (told,) = re.findall(r"<pre>(.*?)</pre>", browse(plain, report.parent / "profile"), re.DOTALL)

    found = json.loads(told)
    assert found["lines"] > 60
    assert found["maps"] > 10
    assert found["rounds"] >= 2
    assert (found["controls"], found["chips"], found["rows"]) == (0, len(METHODS), len(METHODS))
