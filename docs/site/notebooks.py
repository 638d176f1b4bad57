"""The notebooks of docs as pages, with their pictures and what they printed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.site.links import DOCS


def notebook_pages() -> dict[str, str]:
    """The text of a page for each notebook, by its place in the site."""
    folder = DOCS / "notebooks"
    return {f"notebooks/{path.stem}.md": _page(path) for path in sorted(folder.glob("*.ipynb"))}


def _page(path) -> str:
    """The cells below a line that says where the notebook is."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    heading, *rest = (part for cell in cells for part in _cell(cell))
    title, _, text = heading.partition("\n")
    where = f"*This page is a notebook with its outputs: [{path.name}]({path.name}). Open it in Jupyter to change it.*"
    return "\n\n".join((title, where, text.strip(), *rest))


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield from _output(output)


def _output(output: Mapping[str, Any]) -> Iterator[str]:
    """A picture, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        yield f"![What the lines above draw](data:image/png;base64,{''.join(data['image/png']).strip()})"
        return
    text = "".join(output.get("text", data.get("text/plain", "")))
    if text.strip():
        yield f"```text\n{text.rstrip()}\n```"
