"""Names what cannot be read in the files of a run, and files that were changed, wherever the run is shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.results._record import RunRecord, finite_number

_SHOWN = 4
"""Parts, lines and rounds that are named one by one."""


def unreadable_note(runs: Sequence[RunRecord]) -> str:
    """Sentences on what was left out of these runs and on what was changed in them, empty where nothing was."""
    left_out = left_out_sentence([part for run in runs for part in run.left_out])
    return " ".join(filter(None, (left_out, _changed_sentence([file for run in runs for file in run.changed]))))


def _changed_sentence(files: Sequence[str]) -> str:
    """A sentence that names the first files that are not as the run has left them, empty where there is none."""
    if not files:
        return ""
    more = f", … ({len(files)} in all)" if len(files) > _SHOWN else ""
    return (
        f"Changed after the run had finished: {', '.join(files[:_SHOWN])}{more}; the numbers may be wrong. "
        f"`fedblade run --resume --out RUN_DIR` mends what it can."
    )


def left_out_sentence(parts: Sequence[str]) -> str:
    """A sentence that names the first parts that cannot be read, empty where there is none."""
    if not parts:
        return ""
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return f"Left out, because it cannot be read: {'; '.join(parts[:_SHOWN])}{more}."


def broken_lines(numbers: Sequence[int], file: str) -> list[str]:
    """`lines 2, 5 of run/diagnostics.jsonl`."""
    return [f"{numbered('line', numbers)} of {file}"] if numbers else []


def broken_values(rounds: Mapping[int, Mapping[str, Any]], file: str) -> list[str]:
    """`test_accuracy of round 2 in run/history.jsonl`, for each key whose value is a word instead of a number."""
    broken: dict[str, list[int]] = {}
    for round_, entry in sorted(rounds.items()):
        for key, value in entry.items():
            if isinstance(value, str | bool) or (isinstance(value, int) and finite_number(value) is None):
                broken.setdefault(key, []).append(round_)
    return [f"{key} of {numbered('round', numbers)} in {file}" for key, numbers in broken.items()]


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """`line 2`, `lines 2, 5` or, of many, the first few."""
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    return f"{noun}{'' if len(numbers) == 1 else 's'} {shown}"
