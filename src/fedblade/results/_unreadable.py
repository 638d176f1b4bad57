"""Names what cannot be read in the files of a run, and files that were changed, wherever the run is shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedblade.results._format import resume_command
from fedblade.results._record import RunRecord, finite_number

_SHOWN = 4
"""Parts, lines and rounds that are named one by one."""


def unreadable_note(runs: Sequence[RunRecord]) -> str:
    """Sentences on what was left out of these runs and on what was changed in them, empty where nothing was."""
    left_out = left_out_sentence([part for run in runs for part in run.left_out])
    edited = [file for run in runs for file in run.edited]
    return " ".join(filter(None, (left_out, _changed_sentence(runs), _edited_sentence(edited))))


def _changed_sentence(runs: Sequence[RunRecord]) -> str:
    """A sentence that names the first files that are not as the run has left them, empty where there is none."""
    changed = [run for run in runs if run.changed]
    if not changed:
        return ""
    files = _first_named([file for run in changed for file in run.changed])
    others = " (and the same for the other runs)" if len(changed) > 1 else ""
    return (
        f"Changed after the run had finished: {files}; the numbers may be wrong. "
        f"{resume_command(changed[0].path)} mends what it can{others}."
    )


def _edited_sentence(files: Sequence[str]) -> str:
    """A sentence that names the first configurations that do not count, empty where there is none."""
    if not files:
        return ""
    return f"Edited since the run was started, so the settings shown are those of the run: {_first_named(files)}."


def _first_named(files: Sequence[str]) -> str:
    """The first few files, and how many there are if there are more."""
    return ", ".join(files[:_SHOWN]) + (f", … ({len(files)} in all)" if len(files) > _SHOWN else "")


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
