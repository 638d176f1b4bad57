"""Links of the repository's pages, as the site needs them."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "results/benchmarks.md": ROOT / "benchmarks" / "README.md",
}
"""Pages of the site that lie outside of docs, by their place in the site."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_SUFFIXES = (".md", ".svg", ".png", ".ipynb")


def for_the_site(markdown: str, page: str) -> str:
    """The text of `page` with links that lead somewhere in the site; other files of the repository are named only."""
    folder = ELSEWHERE.get(page, DOCS / page).parent

    def mended(found: re.Match[str]) -> str:
        text, target = found[1].strip(), found[2]
        name, _, anchor = target.partition("#")
        path = Path(os.path.normpath(folder / name))
        if not name or ":" in name or not path.exists():
            return found[0]
        place = place_in_site(path)
        if place is None:
            shown = f"`{path.relative_to(ROOT)}`"
            return shown if text.strip("`") in (name, path.name, shown.strip("`")) else f"{text} ({shown})"
        relative = os.path.relpath(place, Path(page).parent)
        return f"[{text}]({relative}{'#' if anchor else ''}{anchor})"

    parts = re.split(r"(^```.*?^```|`[^`\n]+`(?!\]))", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if index % 2 else LINK.sub(mended, part) for index, part in enumerate(parts))


def place_in_site(path: Path) -> str | None:
    """Where the site has a file of the repository; None if it has not."""
    for page, source in ELSEWHERE.items():
        if path == source:
            return page
    if path == ROOT / "README.md":
        return "index.md"
    if path.parent == ROOT / "examples" and path.suffix == ".py":
        return f"reference-examples.md#{path.stem}py"
    if path.is_relative_to(DOCS) and path.suffix in _SUFFIXES:
        return str(path.relative_to(DOCS))
    return None
