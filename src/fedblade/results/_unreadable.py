"""What the files of runs hold that cannot be read: found while reading, and said wherever the runs are shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.results._record import RunRecord, number

_SHOWN = 4
"""Losses that are named one by one."""


def losses(runs: Sequence[RunRecord]) -> str:
    """A sentence on what was left out of these runs, empty where nothing was."""
    found = [each for run in runs for each in run.left_out]
    if not found:
        return ""
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"Left out, because it cannot be read: {'; '.join(found[:_SHOWN])}{more}."


def broken_lines(numbers: Sequence[int], where: str) -> list[str]:
    """`lines 2, 5 of run/diagnostics.jsonl`."""
    if not numbers:
        return []
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    return [f"line{'' if len(numbers) == 1 else 's'} {shown} of {where}"]


def broken_values(rows: Mapping[int, Mapping[str, Any]], where: str) -> list[str]:
    """`test_accuracy of round 2 in run/history.jsonl`, of each key whose value is a word instead of a number."""
    found: dict[str, list[int]] = {}
    for round_, row in sorted(rows.items()):
        for key, value in row.items():
            if isinstance(value, str | bool) or (isinstance(value, int) and number(value) is None):
                found.setdefault(key, []).append(round_)
    return [f"{key} of {_rounds(rounds)} in {where}" for key, rounds in found.items()]


def _rounds(rounds: Sequence[int]) -> str:
    shown = ", ".join(map(str, rounds[:_SHOWN])) + (", …" if len(rounds) > _SHOWN else "")
    return f"round{'' if len(rounds) == 1 else 's'} {shown}"
