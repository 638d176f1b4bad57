"""A new run folder from an earlier checkpoint of a run. The folder of that run stays as it is."""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.files import cannot_write, free_place
from fedblade.core.state_folder import PUT_BACK, same_file
from fedblade.core.words import listing
from fedblade.results import (
    CONFIG,
    DEPLOYMENT,
    DIAGNOSTICS,
    HISTORY,
    METRICS,
    PARTITION,
    RECORD,
    FolderRecord,
    RunDirectory,
)
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._request import RunRequest, check_folder, next_run_folder
from fedblade.runs.distributed._store import files_of_ranks, state_file


def roll_back(source: RunDirectory, round_: int, config: RunConfig) -> Path:
    """Start a run folder beside that of `source` from the checkpoint of a round; the run goes on when it is resumed.

    The new folder has what the run had after that round: checkpoint, states of clients, history and diagnostics. Its
    `folder.json` says where it comes from. `config` is refused as when the run itself goes on.
    """
    record = _checked_record(source, round_)
    target = RunDirectory(_place(source.path, round_))
    target.open(resume=False)
    try:
        _copy(source, target, record, round_)
        Checkpoints(target).states(round_)
        check_folder(target, config, resume=True)
    except BaseException:
        target.close()
        shutil.rmtree(target.path, ignore_errors=True)
        raise
    target.close()
    return target.path


def chosen_folder(request: RunRequest, config: RunConfig) -> Path:
    """The folder of a run: that of --out, or a new one."""
    if request.out is None:
        return next_run_folder(config.method.name)
    if request.from_round is None:
        return Path(request.out)
    return roll_back(RunDirectory(Path(request.out)), request.from_round, config)


def _checked_record(source: RunDirectory, round_: int) -> FolderRecord:
    """What the folder says of itself, if the run can go back to the end of this round."""
    checkpoints = Checkpoints(source)
    saved, best = checkpoints.rounds, checkpoints.best_round
    if not saved:
        raise Misconfigured(f"there is no run with checkpoints in '{source.path}'. Check the folder.")
    possible = [saved_round for saved_round in saved if best <= saved_round]
    record = checkpoints.record()
    if round_ not in possible:
        why = "its folder has no checkpoint of that round (checkpoint.keep says how many a run keeps)"
        if round_ in saved:
            why = f"the best model that it keeps is of round {best}, and that of earlier rounds is gone"
        rounds = listing([str(candidate) for candidate in possible]) or "none"
        raise Misconfigured(
            f"the run in '{source.path}' cannot go back to round {round_}: {why}. Rounds to choose from: {rounds}."
        )
    if record is None:
        raise Misconfigured(
            f"'{source.path / RECORD}' is gone, damaged or that of another run. Put it back as it was; a run that has "
            f"not finished makes it again when it goes on without --from-round."
        )
    return record


def _place(path: Path, round_: int) -> Path:
    """A path beside the folder that is not used: `x-from-40`, `x-from-40-2` and so on."""
    parent = path.parent if path.name not in ("", "..") else path.resolve().parent
    place = parent / f"{path.resolve().name}-from-{round_}"
    return free_place(place, 2) if place.exists() else place


def _copy(source: RunDirectory, target: RunDirectory, record: FolderRecord, round_: int) -> None:
    """Copy what the run had after a round. `folder.json` and `config.toml` come last: without them there is no run."""
    checkpoints = Checkpoints(source)
    states = checkpoints.states(round_)
    files = [*checkpoints.files_of(round_), *(source.path / name for name in (PARTITION, METRICS))]
    files += files_of_ranks(source)
    if states is None:
        # An earlier version has saved this checkpoint, which does not say which files it needs.
        files += [path for path in (source.checkpoints / "clients").rglob("*") if path.is_file()]
    for file in (*files, *(state_file(source, name) for name in states or ())):
        _copy_file(file, target.path / file.relative_to(source.path))
    try:
        for name, digest in (states or {}).items():
            same_file(state_file(target, name), digest, f"the checkpoint of round {round_}")
    except CorruptFile as error:
        raise CorruptFile(f"{error}. {PUT_BACK}") from error
    target.copy_lines_of(record.run, record.rounds)
    for lines in (HISTORY, DIAGNOSTICS):
        target.take_lines(lines, source.path, round_)
    deployment = source.read_json(DEPLOYMENT)
    if deployment is not None:
        target.write_json(DEPLOYMENT, _renamed(deployment, round_))
    origin = {"folder": str(source.path.resolve()), "round": round_}
    changes = [{**change, "round": min(int(change["round"]), round_)} for change in record.changes]
    target.begin(replace(record, changes=changes, digests={}, origin=origin))
    target.write(CONFIG, tomli_w.dumps(record.config))


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file that may be missing; what the run cannot do without is checked afterwards."""
    if not source.is_file():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise cannot_write(target, error) from error


def _renamed(deployment: Mapping[str, Any], round_: int) -> dict[str, Any]:
    """A deployed run under a new name. Nodes find the states of earlier rounds under the names of before.

    Under the former name nodes keep the states for the run in the former folder, which may go on as well.
    """
    before = [[deployment["token"], round_], *deployment.get("earlier", [])]
    return {**deployment, "token": secrets.token_hex(8), "earlier": before}
