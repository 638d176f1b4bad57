"""What a run is asked to be: its configuration, and a folder that can take it."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply
from fedblade.config.run_config import OBJECT, RunConfig, resolve
from fedblade.core.errors import Misconfigured
from fedblade.methods import compose
from fedblade.presets.catalogue import read_config
from fedblade.results import RunDirectory
from fedblade.runs._reuse import check_code

TRACKERS = "trackers"
"""A key of a configuration that is no part of what the run is."""
_DISTRIBUTED, _TIMEOUT = "distributed", "timeout_seconds"
DEPLOYMENT = "flower"
"""The table of an app's file that only a deployment reads."""


def load_config(
    source: str | Path | None, overrides: Mapping[str, Any], where: Sequence[str] = ()
) -> tuple[RunConfig, list[int]]:
    """A checked configuration, and the seeds its preset suggests for comparisons; `where` chooses a grid's cell."""
    given = read_config(source, where)
    if source is not None and Path(source).is_file():
        for method in given.get("methods", {}):
            compose(method)
    # The terms of a deployment mean nothing to a run on one machine, so an app's file is a run's file too.
    given.pop(DEPLOYMENT, None)
    raw = apply(given, overrides)
    seeds = raw.pop("seeds", None)
    config = resolve(raw)
    return config, [config.general.seed] if seeds is None else _check_seeds(seeds)


def requested_config(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    where: Sequence[str] = (),
    *,
    out: str | Path | None,
    resume: bool,
) -> RunConfig:
    """The configuration asked for; resuming without asking for any takes the one the folder was started with.

    Trackers are no part of what is compared: they may be asked for, or not any more, when a run goes on.
    """
    asked = [value for key, value in overrides.items() if value != OBJECT and key != TRACKERS]
    if resume and out is not None and source is None and not where and not asked:
        directory = RunDirectory(Path(out))
        if directory.exists:
            return resolve(apply(directory.stored_config(), overrides))
    return load_config(source, overrides, where)[0]


def _check_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return seeds
    raise Misconfigured(f"seeds = {seeds!r} is not allowed; expected a list of whole numbers, such as [1, 2, 3].")


def check_folder(directory: RunDirectory, config: RunConfig, *, resume: bool) -> None:
    """Refuse a folder that cannot take this run: another configuration, other contents, or other code."""
    directory.check(comparable(directory, config), resume=resume)
    check_code(directory, config)


def comparable(directory: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """The configuration's table, with what a run in the folder was started with and may differ now.

    Those are the trackers and how long ranks wait. A setting that came later than the run has its default there.
    """
    table = config.table()
    if directory.exists:
        stored = directory.stored_config()
        del table[TRACKERS]
        table |= {TRACKERS: stored[TRACKERS]} if TRACKERS in stored else {}
        if _DISTRIBUTED in stored:
            table[_DISTRIBUTED][_TIMEOUT] = stored[_DISTRIBUTED].get(_TIMEOUT)
        _leave_out_defaults(table, stored, _filled(stored))
    return table


def _filled(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the defaults of settings that it lacks; as it is where a part of it is gone."""
    try:
        return resolve(stored).table()
    except Misconfigured:
        return stored


def _leave_out_defaults(table: dict[str, Any], stored: Mapping[str, Any], filled: Mapping[str, Any]) -> None:
    """Take out of `table` what `stored` lacks and what has the default there; `filled` is `stored` with defaults."""
    for key in list(table):
        if isinstance(table[key], dict) and isinstance(filled.get(key), Mapping):
            _leave_out_defaults(table[key], stored.get(key, {}), filled[key])
            if not table[key] and key not in stored:
                del table[key]
        elif key not in stored and key in filled and table[key] == filled[key]:
            del table[key]


def folder_name(method: str) -> str:
    """A method's name as a folder name; a reference to a file keeps its last part."""
    return "".join(c if c.isalnum() or c in "+-_." else "-" for c in method.rpartition("/")[2])


def next_run_folder(method: str, base: Path = Path("runs")) -> Path:
    """`runs/<date>-<method>-<n>` with the first n that is free."""
    stem = f"{date.today().isoformat()}-{folder_name(method)}"
    number = 1
    while (base / f"{stem}-{number}").exists():
        number += 1
    return base / f"{stem}-{number}"
