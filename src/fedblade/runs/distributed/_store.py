"""Where the ranks of a run keep clients' states: in one folder for all ranks, or in one folder per rank."""

import secrets
import time
from pathlib import Path
from typing import Any

from fedblade.config.run_config import RunConfig
from fedblade.core.disk_store import DiskStore
from fedblade.core.errors import Misconfigured
from fedblade.core.files import cannot_write
from fedblade.core.old_states import convert_old_states
from fedblade.core.state import ClientStore, MemoryStore
from fedblade.engines.ranks import Ranks, describe_error, raise_first_error
from fedblade.results import CHECKPOINTS, RunDirectory

_RANKS = f"{CHECKPOINTS}/ranks.json"
_SHARED = "clients"
_MARK = "rank.txt"
_LOOK_SECONDS = 10.0
"""How long it may take until a file that another machine wrote becomes visible."""


def is_per_rank(config: RunConfig, directory: RunDirectory | None) -> bool:
    """Whether every rank keeps the states of its clients. A client is then always trained by the same rank."""
    return directory is None or config.distributed.store == "rank"


def open_store(ranks: Ranks, config: RunConfig, directory: RunDirectory | None) -> ClientStore:
    """The store of this rank."""
    if directory is None:
        return MemoryStore()
    if is_per_rank(config, directory):
        return DiskStore(directory.checkpoints / f"{_SHARED}-rank{ranks.rank}")
    return DiskStore(directory.checkpoints / _SHARED, writer=ranks.rank)


def describe_store(ranks: Ranks, config: RunConfig, directory: RunDirectory | None) -> dict[str, Any]:
    """Rank 0: facts by which the other ranks recognise the store. Another number of ranks than before is refused."""
    if directory is None:
        return {}
    if not is_per_rank(config, directory):
        convert_old_states(directory.checkpoints / _SHARED)
        token = secrets.token_hex(8)
        directory.write(f"{CHECKPOINTS}/.seen-{token}.tmp", token)
        return {"token": token}
    stored = directory.read_json(_RANKS)
    if stored is None:
        if directory.history():
            raise Misconfigured(
                f"'{directory.path}' was begun without ranks that keep clients' states. Resume it without torchrun."
            )
        stored = {"ranks": ranks.world, "token": secrets.token_hex(8)}
        directory.write_json(_RANKS, stored)
    if stored["ranks"] != ranks.world:
        raise Misconfigured(
            f"'{directory.path}' was begun with {stored['ranks']} ranks, which keep the states of their clients, and "
            f"now there are {ranks.world}. Resume with as many ranks; distributed.store=shared allows any number."
        )
    return {"token": stored["token"], "new": not directory.history()}


def state_file(directory: RunDirectory, name: str) -> Path:
    """Where a state file of a checkpoint is; `rank1/…` is a file of a rank that keeps the states of its clients."""
    rank, slash, file = name.rpartition("/")
    return directory.checkpoints / (f"{_SHARED}-{rank}" if slash else _SHARED) / file


def files_of_ranks(directory: RunDirectory) -> list[Path]:
    """The files by which ranks that keep the states of their clients find them again; none for every other run."""
    stored = directory.read_json(_RANKS)
    if stored is None:
        return []
    marks = [directory.checkpoints / f"{_SHARED}-rank{rank}" / _MARK for rank in range(int(stored["ranks"]))]
    for rank, mark in enumerate(marks):
        if not mark.is_file():
            raise Misconfigured(
                f"the clients' states of rank {rank} are not in '{mark.parent}', but on the machine of that rank. Copy "
                f"that folder to this machine, or use distributed.store=shared for runs that are to go back."
            )
    return [directory.path / _RANKS, *marks]


def check_store(ranks: Ranks, config: RunConfig, directory: RunDirectory | None, facts: dict[str, Any]) -> None:
    """All ranks: find the store that rank 0 described. If one rank fails, all ranks fail."""
    if directory is None:
        return
    failed: Exception | None = None
    try:
        if is_per_rank(config, directory):
            _find_rank_folder(ranks, directory, facts)
        else:
            _find_shared_folder(ranks, directory, facts["token"])
    except Exception as error:
        failed = error
    everyone = ranks.gather(describe_error(failed) if failed else {})
    if ranks.is_rank_0 and "token" in facts:
        (directory.checkpoints / f".seen-{facts['token']}.tmp").unlink(missing_ok=True)
    raise_first_error(ranks, everyone, failed)


def _find_shared_folder(ranks: Ranks, directory: RunDirectory, token: str) -> None:
    """Wait for the file that rank 0 wrote."""
    path, deadline = directory.checkpoints / f".seen-{token}.tmp", time.monotonic() + _LOOK_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            raise Misconfigured(
                f"rank {ranks.rank} does not see '{directory.path}' as rank 0 does. Choose an --out on a disk that all "
                f"machines share, or distributed.store=rank, which keeps clients' states on each machine."
            )
        time.sleep(0.05)


def _find_rank_folder(ranks: Ranks, directory: RunDirectory, facts: dict[str, Any]) -> None:
    """Mark the folder of this rank as belonging to the run, or check that mark."""
    name = f"{CHECKPOINTS}/{_SHARED}-rank{ranks.rank}"
    mark = directory.path / name / _MARK
    if mark.is_file() and mark.read_text(encoding="utf-8") == facts["token"]:
        return
    if not facts["new"]:
        raise Misconfigured(
            f"the clients' states of rank {ranks.rank} are not in '{mark.parent}'. Resume with every rank on "
            f"the machine where it was before, or start the run again elsewhere."
        )
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(mark, error) from error
    directory.write(f"{name}/{_MARK}", facts["token"])
