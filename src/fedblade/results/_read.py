"""Find run folders and read them, whatever state the run is in."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.fields import Field
from fedblade.hardness import Hardness
from fedblade.results._fields import read_descriptions
from fedblade.results._folder import (
    CLIENTS,
    CONFIG,
    DIAGNOSTICS,
    HISTORY,
    METRICS,
    PARTITION,
    SUMMARY,
    run_folders,
)
from fedblade.results._json_files import read_bytes, read_lines, read_object
from fedblade.results._record import Partition, Round, RunRecord, number
from fedblade.results._unreadable import broken_lines, broken_values


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Read every run found at or below `paths`, each once, in the order given."""
    if not paths:
        raise Misconfigured("no run directory was given; expected at least one. Name a run or a folder of runs.")
    found: dict[Path, Path] = {}
    for path in paths:
        for folder in _runs_below(Path(path)):
            found.setdefault(folder.resolve(), folder)
    return [_read_run(folder) for folder in found.values()]


def _runs_below(path: Path) -> list[Path]:
    """Run folders at or below `path`, sorted; an error that says why where there is none."""
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
    history, rounds = _read_lines(folder / HISTORY, by_round=True)
    diagnostics, arrays = _read_lines(folder / DIAGNOSTICS, by_round=True)
    clients, in_clients = _read_lines(folder / CLIENTS)
    split, summary = read_object(folder / PARTITION), read_object(folder / SUMMARY)
    fields, in_fields = _read_fields(folder / METRICS)
    by_round = _by_round(history)
    in_history = [*rounds, *broken_values(by_round, _where(folder / HISTORY))]
    return RunRecord(
        path=folder,
        config=_read_config(folder / CONFIG),
        summary=summary,
        history=tuple(_round(number_, entry) for number_, entry in by_round.items()),
        partition=_partition(split, folder / PARTITION),
        diagnostics=_by_round(diagnostics),
        clients=tuple(clients),
        left_out=(*in_history, *arrays, *in_clients, *in_fields),
        pictures=str(split.get("pictures") or _source(summary)),
        stored_hardness=Hardness.restored(split.get("hardness")),
        stored_fields=fields,
    )


def _read_fields(path: Path) -> tuple[dict[str, Field] | None, list[str]]:
    """The fields that the run describes, None where it has no such file, and which descriptions cannot be read."""
    if not path.exists():
        return None, []
    fields, broken = read_descriptions(read_object(path))
    return fields, [f"the description of {name} in {_where(path)}" for name in broken]


def _source(summary: Mapping[str, Any]) -> str:
    """What the samples were read from by the summary of a run, for runs that have no `partition.json`."""
    pictures = summary.get("pictures")
    return str(pictures.get("source") or "") if isinstance(pictures, dict) else ""


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(read_bytes(path).decode("utf-8", errors="replace"))
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{path}' is not TOML ({error}). Restore it or leave this run out.") from error


def _read_lines(path: Path, *, by_round: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects of a file of lines, and which lines cannot be read, in words."""
    found = read_lines(path, by_round=by_round)
    return found.objects, broken_lines(found.broken, _where(path))


def _by_round(entries: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """What the entries hold besides their round, in order of rounds; of a repeated round the later entry counts."""
    found = {entry["round"]: entry for entry in entries}
    return {round_: {k: v for k, v in entry.items() if k != "round"} for round_, entry in sorted(found.items())}


def _round(number_: int, entry: Mapping[str, Any]) -> Round:
    fields = {key: value for key, stored in entry.items() if (value := number(stored)) is not None}
    return Round(number_, fields.get("test_accuracy"), fields.get("test_loss"), fields.get("seconds"), fields)


def _where(path: Path) -> str:
    """A file by its run, wherever that lies."""
    return f"{path.resolve().parent.name}/{path.name}"


def _partition(stored: Mapping[str, Any], path: Path) -> Partition | None:
    if stored.get("counts") is None:
        return None
    counts = check_counts(stored["counts"], f"'counts' of '{path}'")
    names = stored.get("class_names")
    fits = isinstance(names, list) and len(names) == len(counts[0])
    return Partition(str(stored.get("digest", "")), counts, tuple(map(str, names)) if names and fits else None)


def check_counts(counts: Any, what: str) -> tuple[tuple[float, ...], ...]:
    """The table as floats `[clients][classes]`, or an error when it is empty, ragged or not made of counts."""
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
