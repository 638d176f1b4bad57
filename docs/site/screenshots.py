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
PICTURES = {"top": ("", 1150), "collapse": ("header, main > :not(#collapse) { display: none; }", 838)}
"""By name: a rule that hides what the picture does not show, because the browser draws the top only; and the height."""
_WIDTH = 1100


def main(report: str | None = None) -> None:
    """Train if there is no report yet, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        if report is None:
            subprocess.run([sys.executable, "-m", "fedblade", *DEMO, folder], check=True)  # noqa: S603 - our own command
            report = f"{folder}/report.html"
        text = Path(report).read_text(encoding="utf-8")
        for name, (rule, height) in PICTURES.items():
            page = Path(folder) / f"{name}.html"
            page.write_text(text.replace("</head>", f"<style>{rule}</style></head>"), encoding="utf-8")
            screenshot(page.as_uri(), FOLDER / f"report-{name}.png", height)


def screenshot(address: str, file: Path, height: int) -> None:
    """The page as a window of this height shows it, light, with nothing fetched from elsewhere."""
    browser = shutil.which("chromium") or sys.exit("needs Chromium; Debian's package is 'chromium'")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
            f"--user-data-dir={profile}", f"--window-size={_WIDTH},{height}", f"--screenshot={file}", address,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the browser and our own page


if __name__ == "__main__":
    main(*sys.argv[1:])
