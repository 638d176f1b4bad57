"""Saves what can be saved of a run whose folder was removed, renamed or replaced while the run was writing to it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from fedblade.core.errors import FedbladeError, FolderLost
from fedblade.core.files import free_place
from fedblade.results import (
    CONFIG,
    HISTORY,
    PARTITION,
    SUMMARY,
    FolderRecord,
    RunDirectory,
    file_digest,
    resume_command,
)
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._driver import Driver
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._setup import Setup
from fedblade.runs._summary import partition_record
from fedblade.runs._trained_model import save_model


def lost_folder(directory: RunDirectory) -> FolderLost | None:
    """The error of a folder that is not in its place any more, None if it is."""
    try:
        directory.check_held()
    except FolderLost as error:
        return error
    return None


def rescue(
    error: FolderLost,
    directory: RunDirectory,
    setup: Setup,
    driver: Driver,
    model: nn.Module | None,
    summary: Mapping[str, Any],
) -> FolderLost:
    """The error with a sentence on where the run is now.

    A folder that was renamed has all up to its last checkpoint. Otherwise a new folder beside the lost one gets the
    history, the model and, if the run can go on without the states of clients, a checkpoint.
    """
    moved = directory.moved_to()
    if moved is not None:
        return FolderLost(f"{error} {_where(directory.path, *moved)}")
    place = free_place(directory.path.with_name(f"{directory.path.name}-rescued"))
    try:
        goes_on = _write(RunDirectory(place), directory, setup, driver, model, summary)
    except (OSError, FedbladeError) as failure:
        return FolderLost(f"{error} Nothing could be saved elsewhere ({failure}).")
    if goes_on:
        return FolderLost(
            f"{error} All {len(driver.history)} rounds are saved in '{place}'. Go on there: {resume_command(place)}"
        )
    return FolderLost(
        f"{error} The history and the model after {len(driver.history)} rounds are saved in '{place}'. The run cannot "
        f"go on from there, because the states of its clients are lost."
    )


def _where(run: Path, lost: Path, place: Path) -> str:
    """What to do if a folder was renamed: that of the run, or that of its checkpoints."""
    if lost == run:
        return f"It is now '{place}'. Go on there: {resume_command(place)}"
    return f"It is now '{place}'. Move it back, then go on: {resume_command(run)}"


def _write(
    place: RunDirectory,
    lost: RunDirectory,
    setup: Setup,
    driver: Driver,
    model: nn.Module | None,
    summary: Mapping[str, Any],
) -> bool:
    """Write a run folder from what is in memory; returns whether the run can go on from it."""
    place.open(resume=False)
    try:
        table = setup.config.table()
        place.write(CONFIG, tomli_w.dumps(table))
        place.write_json(PARTITION, partition_record(setup, model))
        partition = file_digest(place.path / PARTITION) or ""
        former = lost.record or FolderRecord(lost.run or "", table)
        place.begin(replace(former, config=table, partition=partition, digests={}))
        place.rewrite(HISTORY, driver.history)
        goes_on = not driver.keeps_client_states
        if goes_on:
            driver.save_in(Checkpoints(place))
        save_model(place, driver.evaluated_state, model_facts(setup.dataset))
        place.write_json(SUMMARY, summary)
    finally:
        place.close()
    return goes_on
