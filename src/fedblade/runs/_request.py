"""The configuration that is asked for, and the check that a folder can take the run."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.config.schema import NAMED
from fedblade.core.errors import Misconfigured
from fedblade.methods import compose
from fedblade.presets.catalogue import read_config
from fedblade.results import CONFIG, RunDirectory
from fedblade.runs._changes import Change, changes_of, stored_table
from fedblade.runs._reuse import check_code

_TRACKERS = "trackers"
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
    """The configuration that is asked for.

    If a run is resumed without a preset or file, the overrides change the configuration in its folder.
    """
    if resume and out is not None and source is None and not where:
        directory = RunDirectory(Path(out))
        if directory.exists:
            stored = _checked_config(directory)
            return complete_config(apply_overrides(stored, _without_named_again(overrides, stored)))
        if overrides.keys() <= {_TRACKERS}:
            example = f"`fedblade run quickstart --resume --out {shlex.quote(str(out))}`"
            raise Misconfigured(
                f"there is no run in '{out}' to go on with. Check the folder, or name what to start there: a preset, "
                f"a configuration or settings, such as {example}."
            )
    return load_config(source, overrides, where)[0]


def _checked_config(directory: RunDirectory) -> dict[str, Any]:
    """The configuration in a folder. One that was edited and cannot be used is named, with a way out."""
    stored, record = stored_table(directory), directory.record
    try:
        complete_config(stored)
    except Misconfigured as error:
        if record is None or stored == record.config:
            raise
        raise Misconfigured(
            f"'{directory.path / CONFIG}' was edited: {error} Correct it, or remove this file to go on with the "
            f"settings that the run has."
        ) from error
    return stored


def _without_named_again(overrides: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides without parts that the run has already: to name a part again must not lose its knobs."""
    same = {key: stored.get(kind, {}).get("name") for kind in NAMED for key in (kind, f"{kind}.name")}
    return {key: value for key, value in overrides.items() if key not in same or value != same[key]}


def _check_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return seeds
    raise Misconfigured(f"seeds = {seeds!r} is not allowed; expected a list of whole numbers, such as [1, 2, 3].")


def check_folder(directory: RunDirectory, config: RunConfig, *, resume: bool) -> list[Change]:
    """The settings that change when the run in a folder goes on.

    A folder is refused if it has other contents, a run of other code, or a run whose settings may not become these.
    """
    directory.check(resume=resume)
    check_code(directory, config)
    return changes_of(directory, config)


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
