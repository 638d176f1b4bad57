"""The page of 200 groups of runs: its size over that of 30 groups, and how long a browser needs to open it."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.benchmark import Case, Options, Result, Skipped, at_most
from benchmarks.timing import median
from benchmarks.workloads.growth.report import ROUNDS, make_groups
from benchmarks.workloads.growth.row import GrowthRow
from fedblade.core.errors import RunFailed
from fedblade.report import build_report

_FEW, _MANY = 30, 200
SIZE = Case(
    "page of 200 groups over 30",
    "bytes of the report: copies of a run of 10 rounds with the default metrics, each with another learning rate",
    at_most(3),
)
OPENING = Case(
    "page of 200 groups opens",
    "seconds in headless Chromium, from asking for the file until it is laid out and its scripts have run; the start "
    "of the browser is left out",
    at_most(2),
    "s",
)
_CLOCK = """<script>addEventListener("load", () => {
  document.body.getBoundingClientRect();
  const took = document.createElement("pre");
  took.id = "took";
  took.textContent = String(performance.now());
  document.body.append(took);
});</script>"""
_TOOK = re.compile(r'<pre id="took">([\d.]+)</pre>')


def measure_size(options: Options, few: int = _FEW, many: int = _MANY, rounds: int = ROUNDS) -> Result:
    """The bytes of both pages; they are the same every time."""
    options.require_cpu()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_groups(folder, (few, many), rounds)
        less, more = (build_report([folder / str(size)], folder / "page.html").stat().st_size for size in (few, many))
    return Result(more / less, {f"{many} groups MB": more / 1e6, f"{few} groups MB": less / 1e6})


def measure_opening(options: Options, many: int = _MANY, rounds: int = ROUNDS, repetitions: int = 5) -> Result:
    """The seconds of fresh browsers one after another, after one that warms up."""
    options.require_cpu()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise Skipped("needs Chromium, which is not installed; Debian's package is 'chromium'")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_groups(folder, (many,), rounds)
        page = build_report([folder / str(many)], folder / "page.html")
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</body>", f"{_CLOCK}</body>"), encoding="utf-8")
        seconds = [seconds_to_open(browser, page) for _ in range(options.repetitions(repetitions) + 1)][1:]
    return Result(median(seconds), {"s": median(seconds)}, seconds)


def seconds_to_open(browser: str, page: Path) -> float:
    """What the clock in the page says when everything is there."""
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800")
    # The browser asks the network for nothing.
    alone = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    profile = page.with_name("profile")
    command = [browser, *quiet, *alone, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    took = _TOOK.search(done.stdout)
    if took is None:
        raise RunFailed(f"Chromium did not open the page: {done.stderr.strip()[-200:] or 'no message'}")
    return float(took[1]) / 1000


ROWS = (GrowthRow(SIZE, measure_size), GrowthRow(OPENING, measure_opening))
