"""The lines of `fedblade list settings`."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

_WIDTH = 100


def settings_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Settings by section, and the knobs of parts by part: the key with its default, then type, meaning and aliases."""
    blocks = []
    for (section, part), group in groupby(rows, key=lambda row: (row["section"], row["part"])):
        heading = f"knobs of {section} {part}" if part else f"[{section}]" if section else "outside any section"
        blocks.append("\n".join((heading, *(_lines(row) for row in group))))
    return "\n\n".join(blocks)


def _lines(row: Mapping[str, Any]) -> str:
    from fedblade.config.literals import literal

    default = "" if row["default"] is None else f" = {literal(row['default'])}"
    aliases = f" Also called {', '.join(row['aliases'])}." if row["aliases"] else ""
    body = f"{row['meaning']}{aliases} ({row['type']})"
    indent = "      "
    return "\n".join(
        (
            f"  {row['name']}{default}",
            *textwrap.wrap(body, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False),
        )
    )
