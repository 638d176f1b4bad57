"""The pictures of a report in README.md and docs/tutorial-report.md: `python -m docs.site.screenshots` in the root.

It trains what `make demo` trains, opens the report in Chromium (Debian's package `chromium`), and writes
docs/images/report-*.png. Where the report lies can be given, and then nothing is trained.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "images"
DEMO = ("compare", "--methods", "fedavg,fedetf,fedblade", "--threshold", "90", "--out")
PICTURES = {"top": ("", 1150), "collapse": ("#collapse", 790)}
"""By name: where the picture begins in the report, and its height."""
_WIDTH = 1100


def main(report: str | None = None) -> None:
    """Train if there is no report yet, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        if report is None:
            subprocess.run([sys.executable, "-m", "fedblade", *DEMO, folder], check=True)
            report = f"{folder}/report.html"
        for name, (place, height) in PICTURES.items():
            screenshot(Path(report).resolve().as_uri() + place, FOLDER / f"report-{name}.png", height)


def screenshot(address: str, file: Path, height: int) -> None:
    """The page as a window of this height shows it, light, with nothing fetched from elsewhere."""
    browser = shutil.which("chromium") or sys.exit("needs Chromium; Debian's package is 'chromium'")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
            f"--window-size={_WIDTH},{height}", f"--screenshot={file}", address,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
