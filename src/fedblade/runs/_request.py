"""The configuration that is asked for, and the check that a folder can take the run."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides, name_keys
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.config.schema import NAMED
from fedblade.core.errors import Misconfigured
from fedblade.core.files import free_place
from fedblade.methods import compose
from fedblade.presets.catalogue import is_known, read_config
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


@dataclass(frozen=True)
class RunRequest:
    """What one process is asked to run, by `fedblade run` or by a call of `fedblade.run`.

    If a run is resumed or restarted without a `source`, the overrides change the configuration in its folder. With
    `from_round` the run in `out` is resumed from that round in a new folder.
    """

    source: str | Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    where: Sequence[str] = ()
    out: str | Path | None = None
    resume: bool = False
    restart: bool = False
    from_round: int | None = None

    def config(self) -> RunConfig:
        """The configuration that is asked for."""
        self.check_options()
        if self._directory is not None:
            if self._directory.exists:
                stored = _checked_config(self._directory)
                return complete_config(apply_overrides(stored, _without_named_again(self.overrides, stored)))
            if self.overrides.keys() <= {_TRACKERS}:
                example = f"`fedblade run quickstart --resume --out {shlex.quote(str(self.out))}`"
                raise Misconfigured(
                    f"there is no run in '{self.out}' to go on with. Check the folder, or name what to start there: a "
                    f"preset, a configuration or settings, such as {example}."
                )
        return load_config(self.source, self.overrides, self.where)[0]

    def check_options(self) -> None:
        """Refuse options that do not go together."""
        if (self.resume or self.restart) and self.out is None:
            option = "--resume" if self.resume else "--restart"
            raise Misconfigured(f"{option} needs the folder of the run: {option} --out DIR.")
        if self.from_round is not None and (self.restart or not self.resume):
            raise Misconfigured(
                "--from-round goes on with a run from an earlier round, in a new folder. It needs the folder of that "
                "run: --resume --out DIR."
            )

    @property
    def is_readable(self) -> bool:
        """Whether the file or the run folder that the request names is on this machine."""
        if self._directory is not None:
            return self._directory.exists
        return self.source is None or is_known(self.source)

    def options(self) -> dict[str, Any]:
        """The options of the command. Every process may have its own folder, if the others have one too."""
        folder = "not given" if self.out is None else "given"
        return {"resume": self.resume, "restart": self.restart, "from_round": self.from_round, "out": folder}

    def as_given(self) -> dict[str, str]:
        """The request as texts, for processes that cannot read what it names."""
        named = {"the preset or file": str(self.source or "not given"), "where": ", ".join(self.where)}
        return named | {key: str(value) for key, value in self.overrides.items()}

    @property
    def _directory(self) -> RunDirectory | None:
        """The folder whose configuration counts."""
        goes_on = (self.resume or self.restart) and self.source is None and not self.where
        return RunDirectory(Path(self.out)) if goes_on and self.out is not None else None


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
    same = {key: stored.get(kind, {}).get("name") for kind in NAMED for key in name_keys(kind)}
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


def next_run_folder(method: str) -> Path:
    """`runs/<date>-<method>-<n>` with the first unused n."""
    return free_place(Path("runs") / f"{date.today().isoformat()}-{folder_name(method)}")
