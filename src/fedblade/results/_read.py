"""Find run folders and read them, whatever state the run is in."""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedblade.core.errors import Misconfigured
from fedblade.core.fields import Field
from fedblade.hardness import Hardness
from fedblade.results._contributions import read_updates
from fedblade.results._fields import read_descriptions
from fedblade.results._file_names import (
    CLIENTS,
    CONFIG,
    DIAGNOSTICS,
    EVENTS,
    HISTORY,
    METRICS,
    PARTITION,
    RECORD,
    RECORD_FILES,
    SUMMARY,
    run_folders,
)
from fedblade.results._folder_record import FolderRecord, changed_files, read_record
from fedblade.results._json_files import read_bytes, read_lines, read_object
from fedblade.results._migrations import with_later_settings
from fedblade.results._record import Partition, Round, RunRecord, finite_number
from fedblade.results._unreadable import broken_lines, broken_values

T = TypeVar("T")
_NOTHING: Mapping[str, Any] = {}
"""What stands in for a file that cannot be read."""


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Read all runs at or below `paths`, in this order; a run that is found twice is read once."""
    if not paths:
        raise Misconfigured("no run directory was given; expected at least one. Name a run or a folder of runs.")
    folders: dict[Path, Path] = {}
    for path in paths:
        for folder in _runs_below(Path(path)):
            folders.setdefault(folder.resolve(), folder)
    return [_read_run(folder) for folder in folders.values()]


def _runs_below(path: Path) -> list[Path]:
    """The run folders at or below `path`, sorted; an error where there is none."""
    if not path.exists():
        raise Misconfigured(f"'{path}' does not exist; expected a run directory or a folder of runs. Check the path.")
    if not path.is_dir():
        raise Misconfigured(f"'{path}' is a file; expected a run directory. Give its folder: '{path.parent}'.")
    runs = list(run_folders(path))
    if not runs:
        raise Misconfigured(
            f"'{path}' holds no run; expected {CONFIG} and {HISTORY} in it or below it. "
            "Give a folder that `fedblade run` or `fedblade compare` wrote."
        )
    return runs


def _read_run(folder: Path) -> RunRecord:
    history, broken_rounds = _read_lines(folder / HISTORY, by_round=True)
    diagnostics, broken_arrays = _read_lines(folder / DIAGNOSTICS, by_round=True)
    clients, broken_clients = _read_lines(folder / CLIENTS)
    _, broken_record = _or_left_out(read_bytes, folder / RECORD, b"")
    record = None if broken_record else read_record(folder)
    written, broken_config = _or_left_out(_read_config, folder / CONFIG, _NOTHING)
    config = written if record is None else record.config
    split, broken_split = _or_left_out(read_object, folder / PARTITION, _NOTHING)
    summary, broken_summary = _or_left_out(read_object, folder / SUMMARY, {"status": "unknown"})
    partition, broken_counts = _or_left_out(lambda path: read_partition(split, path), folder / PARTITION, None)
    fields, broken_fields = _read_fields(folder / METRICS)
    rounds = by_round(history)
    broken_numbers = broken_values(rounds, _file_of_run(folder / HISTORY))
    broken_files = (
        *broken_record,
        *broken_config,
        *broken_summary,
        *broken_split,
        *(f"the counts in {file}" for file in broken_counts),
    )
    completed = tuple(round_of(index, entry) for index, entry in rounds.items())
    return RunRecord(
        path=folder,
        config=config,
        summary=summary,
        history=completed,
        partition=partition,
        diagnostics=by_round(diagnostics),
        clients=tuple(clients),
        left_out=(*broken_files, *broken_rounds, *broken_numbers, *broken_arrays, *broken_clients, *broken_fields),
        changed=tuple(file for file in _changed_files(folder, record) if file not in (*broken_files, *broken_fields)),
        edited=(_file_of_run(folder / CONFIG),) if written not in (_NOTHING, config) else (),
        pictures=str(split.get("pictures") or _source(summary)),
        stored_hardness=Hardness.restored(split.get("hardness")),
        stored_fields=fields,
        updates=read_updates(read_lines(folder / EVENTS).objects, completed),
    )


def _changed_files(folder: Path, record: FolderRecord | None) -> tuple[str, ...]:
    """The files that the report reads and that were changed or removed after the run had finished."""
    # Not the model: those of many runs are large, and the report does not show them.
    changed = changed_files(folder, record, set(RECORD_FILES) - {CONFIG})
    return tuple(_file_of_run(folder / name) for name in RECORD_FILES if name in changed)


def _or_left_out(read: Callable[[Path], T], path: Path, instead: T) -> tuple[T, list[str]]:
    """What `read` makes of a file; if it cannot be read, what stands in for it, and the name of the file."""
    try:
        return read(path), []
    except Misconfigured:
        return instead, [_file_of_run(path)]


def _read_fields(path: Path) -> tuple[dict[str, Field] | None, list[str]]:
    """The fields that the run describes, None without the file, and the descriptions that cannot be read, in words."""
    if not path.exists():
        return None, []
    try:
        fields, broken = read_descriptions(read_object(path))
    except Misconfigured:
        # Descriptions only decorate the numbers.
        return None, [_file_of_run(path)]
    return fields, [f"the description of {name} in {_file_of_run(path)}" for name in broken]


def _source(summary: Mapping[str, Any]) -> str:
    """What the samples were read from, as the summary says; for runs that have no `partition.json`."""
    pictures = summary.get("pictures")
    return str(pictures.get("source") or "") if isinstance(pictures, dict) else ""


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = tomllib.loads(read_bytes(path).decode("utf-8", errors="replace"))
        return with_later_settings(config) if config else _NOTHING
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{path}' is not TOML ({error}). Restore it or leave this run out.") from error


def _read_lines(path: Path, *, by_round: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects of a file of lines, and the lines that cannot be read, in words."""
    lines, broken = _or_left_out(lambda path: read_lines(path, by_round=by_round), path, None)
    if lines is None:
        return [], broken
    return lines.objects, broken_lines(lines.broken, _file_of_run(path))


def by_round(entries: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The entries without their round, by round in ascending order; of a repeated round the later entry counts."""
    latest = {entry["round"]: entry for entry in entries}
    return {index: {key: latest[index][key] for key in latest[index] if key != "round"} for index in sorted(latest)}


def round_of(index: int, entry: Mapping[str, Any]) -> Round:
    """A line of the history as a value."""
    numbers = {name: value for name, stored in entry.items() if (value := finite_number(stored)) is not None}
    return Round(
        index,
        numbers.get("test_accuracy"),
        numbers.get("test_loss"),
        numbers.get("seconds"),
        numbers,
        _client_ids(entry.get("clients")) or (),
        _client_ids(entry.get("contributors")),
        tuple(map(str, entry["claimed"])) if isinstance(entry.get("claimed"), list) else (),
    )


def _client_ids(stored: object) -> tuple[int, ...] | None:
    """A stored list of clients, None for anything else."""
    if not isinstance(stored, list) or not all(type(client) is int for client in stored):
        return None
    return tuple(stored)


def _file_of_run(path: Path) -> str:
    """A file and the name of its run folder."""
    return f"{path.resolve().parent.name}/{path.name}"


def read_partition(stored: Mapping[str, Any], path: Path) -> Partition | None:
    """The table of a stored partition, None if it holds none; an error where the table is broken."""
    if stored.get("counts") is None:
        return None
    counts = check_counts(stored["counts"], f"'counts' of '{path}'")
    classes, clients = _names(stored, "class_names", len(counts[0])), _names(stored, "client_names", len(counts))
    return Partition(str(stored.get("digest", "")), counts, classes, clients)


def _names(stored: Mapping[str, Any], key: str, number: int) -> tuple[str, ...] | None:
    """The stored names; None unless there are `number` of them."""
    names = stored.get(key)
    return tuple(map(str, names)) if isinstance(names, list) and len(names) == number else None


def check_counts(counts: Any, what: str) -> tuple[tuple[float, ...], ...]:
    """The table as floats `[clients][classes]`; an error where it is empty, ragged or not made of counts."""
    try:
        table = tuple(tuple(float(n) for n in row) for row in counts)
    except (TypeError, ValueError):
        table = ()
    widths = {len(row) for row in table}
    if len(widths) != 1 or 0 in widths or not all(0 <= n < math.inf for row in table for n in row):
        raise Misconfigured(
            f"{what} is not a table of counts; expected one row per client, each with one "
            "number >= 0 per class. Pass the n_kc table of a partition."
        )
    return table
