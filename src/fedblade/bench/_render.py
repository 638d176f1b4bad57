"""Rows as text: a table for a terminal of 80 columns, a table in Markdown, and JSON with the facts of the machine."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from fedblade.bench._base import Row
from fedblade.bench._machine import hardware, versions

_WIDTH = 80
_NAME, _CASE, _VALUE, _GOAL = 11, 34, 11, 12


def tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as plain values, each with the machine and the versions it was measured with."""
    facts = {"hardware": hardware(), "versions": versions()}
    return [row.table() | facts for row in rows]


def as_json(found: Sequence[dict[str, Any]]) -> str:
    """The rows as a JSON list."""
    return json.dumps(found, indent=1, ensure_ascii=False)


def as_text(found: Sequence[dict[str, Any]]) -> str:
    """A table, then what each row ran, its medians, and why some were skipped."""
    lines = [_line("benchmark", "case", "measured", "goal", "met"), "─" * _WIDTH]
    lines += [_line(row["name"], row["case"], value(row), row["goal"] or "", verdict(row)) for row in found]
    for name in dict.fromkeys(row["name"] for row in found):
        lines += ["", name, *_explained([row for row in found if row["name"] == name])]
    if found:
        lines += ["", *_paragraph(facts(found[0]))]
    return "\n".join(lines)


def as_markdown(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table with the command of each row; skipped rows keep a cell that says so."""
    columns = ("benchmark", "case", "goal", "measured", "met", "how it came about", "command")
    rows = [
        (row["name"], row["case"], row["goal"] or "—", value(row), verdict(row) or "—", details(row), _command(row))
        for row in found
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ("---",) * len(columns), *rows))


def value(row: dict[str, Any]) -> str:
    """The measured value with its unit, short."""
    number, unit = row["value"], row["unit"]
    if number is None:
        return "skipped"
    if unit == "difference":
        return f"{number:.1e}"
    places = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{places}f}{'' if unit == '×' else ' '}{unit}"


def verdict(row: dict[str, Any]) -> str:
    """Whether the goal was met, in a word."""
    return {True: "yes", False: "no", None: ""}[row["met"]]


def details(row: dict[str, Any]) -> str:
    """Why a row was skipped, or its medians, repetitions and note."""
    if row["skipped"]:
        return f"skipped: {row['skipped']}"
    parts = [f"{name} {number:.4g}" for name, number in row["medians"].items()]
    if len(row["values"]) > 1:
        parts.append(f"{row['repetitions']} repetitions from {min(row['values']):.3g} to {max(row['values']):.3g}")
    return "; ".join([*parts, *([row["note"]] if row["note"] else [])])


def facts(row: dict[str, Any]) -> str:
    """Machine and versions in one sentence."""
    return f"{row['hardware']}; {', '.join(f'{name} {version}' for name, version in row['versions'].items())}"


def _explained(found: Sequence[dict[str, Any]]) -> list[str]:
    """What the rows of a benchmark ran, once where they agree, then how each came about or why it was skipped."""
    lines = [line for what in dict.fromkeys(row["what"] for row in found) for line in _paragraph(f"  {what}")]
    for row in found:
        if not row["skipped"] and details(row):
            lines += _paragraph(f"  - {row['case']}: {details(row)}", "    ")
    for reason in dict.fromkeys(row["skipped"] for row in found if row["skipped"]):
        cases = "; ".join(row["case"] for row in found if row["skipped"] == reason)
        lines += _paragraph(f"  - skipped: {reason} ({cases})", "    ")
    return lines


def _line(name: str, case: str, measured: str, goal: str, met: str) -> str:
    return f"{name:<{_NAME}}{case:<{_CASE}}{measured:>{_VALUE}}  {goal:<{_GOAL}}{met}".rstrip()


def _command(row: dict[str, Any]) -> str:
    return f"`fedblade bench {row['name']}`"


def _paragraph(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, drop_whitespace=True)
