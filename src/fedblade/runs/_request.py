"""The configuration that is asked for, and the check that a folder can take the run."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import FROM_PYTHON, RunConfig, complete_config
from fedblade.core.errors import Misconfigured
from fedblade.methods import compose
from fedblade.presets.catalogue import read_config
from fedblade.results import RunDirectory
from fedblade.runs._reuse import check_code

TRACKERS = "trackers"
"""This key does not change the result of a run."""
_DISTRIBUTED, _TIMEOUT = "distributed", "timeout_seconds"
DEPLOYMENT = "flower"
"""The table of an app's file that only a deployment uses."""


def load_config(
    source: str | Path | None, overrides: Mapping[str, Any], where: Sequence[str] = ()
) -> tuple[RunConfig, list[int]]:
    """A checked configuration, and the seeds for comparisons. `where` chooses the cell of a grid.

    `source` is the name of a preset or a file; None is the quickstart.
    """
    tables = read_config(source, where)
    if source is not None and Path(source).is_file():
        for method in tables.get("methods", {}):
            compose(method)
    # A run on one machine reads the file of an app too, and ignores the settings of the deployment.
    tables.pop(DEPLOYMENT, None)
    tables = apply_overrides(tables, overrides)
    seeds = tables.pop("seeds", None)
    config = complete_config(tables)
    return config, [config.general.seed] if seeds is None else _check_seeds(seeds)


def requested_config(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    where: Sequence[str] = (),
    *,
    out: str | Path | None,
    resume: bool,
) -> RunConfig:
    """The configuration that is asked for. If a run is resumed and nothing is asked for, the one of its folder.

    Trackers do not count as asked for: they may change when a run goes on.
    """
    changes = [value for key, value in overrides.items() if value != FROM_PYTHON and key != TRACKERS]
    if resume and out is not None and source is None and not where and not changes:
        directory = RunDirectory(Path(out))
        if directory.exists:
            return complete_config(apply_overrides(directory.stored_config(), overrides))
    return load_config(source, overrides, where)[0]


def _check_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return seeds
    raise Misconfigured(f"seeds = {seeds!r} is not allowed; expected a list of whole numbers, such as [1, 2, 3].")


def check_folder(directory: RunDirectory, config: RunConfig, *, resume: bool) -> None:
    """Refuse a folder that has another configuration, other contents, or a run of other code."""
    directory.check(comparable_table(directory, config), resume=resume)
    check_code(directory, config)


def comparable_table(directory: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """The configuration as tables, without differences to the folder's configuration that do not matter.

    These are the trackers, the timeout of ranks, and the defaults of settings that are newer than the run.
    """
    table = config.table()
    if directory.exists:
        stored = directory.stored_config()
        del table[TRACKERS]
        table |= {TRACKERS: stored[TRACKERS]} if TRACKERS in stored else {}
        if _DISTRIBUTED in stored:
            table[_DISTRIBUTED][_TIMEOUT] = stored[_DISTRIBUTED].get(_TIMEOUT)
        _remove_new_defaults(table, stored, _with_defaults(stored))
    return table


def _with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the defaults of settings that it lacks; unchanged if one of its parts is gone."""
    try:
        return complete_config(stored).table()
    except Misconfigured:
        return stored


def _remove_new_defaults(table: dict[str, Any], stored: Mapping[str, Any], filled: Mapping[str, Any]) -> None:
    """Remove settings that `stored` lacks and that have their default. `filled` is `stored` with defaults."""
    for key in list(table):
        if isinstance(table[key], dict) and isinstance(filled.get(key), Mapping):
            _remove_new_defaults(table[key], stored.get(key, {}), filled[key])
            if not table[key] and key not in stored:
                del table[key]
        elif key not in stored and key in filled and table[key] == filled[key]:
            del table[key]


def folder_name(method: str) -> str:
    """A method's name as a folder name. Of a reference to a file, the name of the file stays."""
    return "".join(c if c.isalnum() or c in "+-_." else "-" for c in method.rpartition("/")[2])


def next_run_folder(method: str, base: Path = Path("runs")) -> Path:
    """`runs/<date>-<method>-<n>` with the first unused n."""
    stem = f"{date.today().isoformat()}-{folder_name(method)}"
    number = 1
    while (base / f"{stem}-{number}").exists():
        number += 1
    return base / f"{stem}-{number}"
