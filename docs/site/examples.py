"""The scripts of `examples` as one page."""

import ast

from docs.site.links import ROOT
from docs.site.text import paragraphs

_INTRODUCTION = """\
# Example scripts

Whole scripts, each of which a test runs. They are in the folder `examples` of the repository.
"""


def example_page() -> str:
    """The page of all example scripts."""
    return "\n\n".join((_INTRODUCTION, *(_section(path) for path in sorted((ROOT / "examples").glob("*.py")))))


def _section(path) -> str:
    code = path.read_text(encoding="utf-8")
    about = paragraphs(ast.get_docstring(ast.parse(code)) or "")
    return f"## {path.name}\n\n{about}\n\n```python\n{code.rstrip()}\n```"
