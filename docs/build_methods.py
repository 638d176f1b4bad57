"""Write the pages of docs/methods from the methods themselves: `python docs/build_methods.py [FOLDER]`.

Pages of methods that are gone are removed.
"""

import sys
from pathlib import Path

from fedblade.cards import method_pages


def build(folder: Path) -> None:
    """Write the pages into the folder and remove other pages."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = method_pages()
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "methods")
