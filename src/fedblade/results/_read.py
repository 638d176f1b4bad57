"""Find run directories and read them, whatever state the run is in."""

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.fields import Field
from fedblade.hardness import Hardness
from fedblade.results._fields import read_descriptions
from fedblade.results._folder import METRICS
from fedblade.results._record import Partition, Round, RunRecord, number
from fedblade.results._unreadable import broken_lines, broken_values


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Read every run found at or below `paths`, each once, in the order given."""
    if not paths:
        raise Misconfigured("no run directory was given; expected at least one. Name a run or a folder of runs.")
    found: dict[Path, Path] = {}
    for path in paths:
        for folder in _find(Path(path)):
            found.setdefault(folder.resolve(), folder)
    return [_read_run(folder) for folder in found.values()]


def _find(path: Path) -> list[Path]:
    """Run directories at or below `path`, sorted."""
    if not path.exists():
        raise Misconfigured(f"'{path}' does not exist; expected a run directory or a folder of runs. Check the path.")
    if not path.is_dir():
        raise Misconfigured(f"'{path}' is a file; expected a run directory. Give its folder: '{path.parent}'.")
    runs = list(_walk(path))
    if not runs:
        raise Misconfigured(
            f"'{path}' holds no run; expected config.toml and history.jsonl in it or below it. "
            "Give a folder that `fedblade run` or `fedblade compare` wrote."
        )
    return runs


def _walk(path: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(path):
        if _is_run(files):
            below.clear()
            yield Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("."))


def _is_run(files: Sequence[str]) -> bool:
    """A history makes a run; so does a configuration beside what a run writes before its first round."""
    return "history.jsonl" in files or (
        "config.toml" in files and ("partition.json" in files or "summary.json" in files)
    )


def _read_run(folder: Path) -> RunRecord:
    history, in_history = _read_history(folder / "history.jsonl")
    diagnostics, in_diagnostics = _read_lines(folder / "diagnostics.jsonl", keyed=True)
    clients, in_clients = _read_lines(folder / "clients.jsonl")
    split, summary = (_read_object(folder / name) for name in ("partition.json", "summary.json"))
    fields, in_fields = _read_fields(folder / METRICS)
    return RunRecord(
        path=folder,
        config=_read_config(folder / "config.toml"),
        summary=summary,
        history=history,
        partition=_partition(split, folder / "partition.json"),
        diagnostics=_by_round(diagnostics),
        clients=tuple(clients),
        left_out=(*in_history, *in_diagnostics, *in_clients, *in_fields),
        pictures=str(split.get("pictures") or _source(summary)),
        stored_hardness=Hardness.restored(split.get("hardness")),
        stored_fields=fields,
    )


def _read_fields(path: Path) -> tuple[dict[str, Field] | None, list[str]]:
    """The fields that the run describes, None where it has no such file, and which descriptions cannot be read."""
    if not path.exists():
        return None, []
    fields, broken = read_descriptions(_read_object(path))
    return fields, [f"the description of {name} in {_where(path)}" for name in broken]


def _source(summary: Mapping[str, Any]) -> str:
    """What the samples were read from by the summary of a run, for runs that have no `partition.json`."""
    pictures = summary.get("pictures")
    return str(pictures.get("source") or "") if isinstance(pictures, dict) else ""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise Misconfigured(f"'{path}' cannot be read ({error.strerror}). Check its permissions.") from error


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{path}' is not TOML ({error}). Restore it or leave this run out.") from error


def _read_object(path: Path) -> Mapping[str, Any]:
    text = _text(path)
    if not text:
        return {}
    parsed = _json(text)
    if not isinstance(parsed, dict):
        raise Misconfigured(f"'{path}' is not a JSON object. Restore it or leave this run out.")
    return parsed


def _json(text: str) -> object:
    """The parsed text, or None when it is not JSON."""
    try:
        parsed: object = json.loads(text)
    except ValueError:
        return None
    return parsed


def _read_history(path: Path) -> tuple[tuple[Round, ...], list[str]]:
    """Rounds in order, and what cannot be read; of a repeated round the later line counts.

    A torn last line is dropped without a word: so a run leaves it that is writing, or was killed while it did.
    """
    text = _text(path)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows: dict[int, dict[str, Any]] = {}
    left_out: list[str] = []
    for at, line in lines:
        entry = _json(line)
        index = entry.get("round") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(index, int):
            rows[index] = entry
        elif at != lines[-1][0]:
            raise Misconfigured(
                f"line {at} of '{path}' is not a round; expected a JSON object with 'round'. "
                "Restore the file or leave this run out."
            )
        elif text.endswith("\n"):
            left_out += broken_lines([at], _where(path))
    return tuple(_round(rows[index]) for index in sorted(rows)), [*left_out, *broken_values(rows, _where(path))]


def _round(entry: Mapping[str, Any]) -> Round:
    fields = {key: value for key, stored in entry.items() if (value := number(stored)) is not None}
    return Round(entry["round"], fields.get("test_accuracy"), fields.get("test_loss"), fields.get("seconds"), fields)


def _read_lines(path: Path, *, keyed: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON objects of a file of lines, with `keyed` those of rounds, and which lines are none.

    A torn last line is dropped as in the history.
    """
    text = _text(path)
    rows, broken = [], []
    lines = text.split("\n")
    for at, line in enumerate(lines, 1):
        entry = _json(line) if line.strip() else None
        if isinstance(entry, dict) and (not keyed or isinstance(entry.get("round"), int)):
            rows.append(entry)
        elif line.strip() and at < len(lines):
            broken.append(at)
    return rows, broken_lines(broken, _where(path))


def _by_round(rows: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Arrays by round and name, of a repeated round the later line."""
    found = {row["round"]: row for row in rows}
    return {round_: {k: v for k, v in row.items() if k != "round"} for round_, row in sorted(found.items())}


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
