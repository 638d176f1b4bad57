"""Pieces of Markdown that several generated pages use."""

from collections.abc import Iterable, Sequence

_LINKS = {"arXiv:": "https://arxiv.org/abs/", "doi:": "https://doi.org/"}


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def paragraphs(text: str) -> str:
    """A docstring as Markdown: characters with a meaning in Markdown stand for themselves outside of code."""
    pieces = text.split("`")
    return "`".join(_escaped(piece) if index % 2 == 0 else piece for index, piece in enumerate(pieces))


def anchored(paper: str) -> str:
    """The identifiers of papers as links."""
    return ", ".join(_link(each) for each in paper.split(", "))


def _link(paper: str) -> str:
    for prefix, address in _LINKS.items():
        if paper.startswith(prefix):
            return f"[{paper}]({address}{paper.removeprefix(prefix)})"
    return paper


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "*_[]<>$" else char for char in text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
