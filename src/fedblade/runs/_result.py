"""The result of a run: of a run that just ended, read from a run folder, or received from rank 0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.core.listener import RoundRecord
from fedblade.core.tree import Tree
from fedblade.results import CLIENTS, DIAGNOSTICS, MODEL, RunDirectory
from fedblade.runs._changes import Change
from fedblade.runs._driver import Driver
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import Profile
from fedblade.runs._setup import Setup
from fedblade.runs._summary import changes_on_record, summarise
from fedblade.runs._trained_model import TrainedModel, load
from fedblade.runs._tuning import ClientRecord


@dataclass(frozen=True)
class Result:
    """A finished run.

    - `history`: one record per round.
    - `summary`: the contents of `summary.json`. Its `personal_std` is the standard deviation over clients (n): it says
      how clients differ, not how certain the mean is.
    - `model`: the trained network.
    - `path`: the run folder, or None.
    - `clients`: one record per client whose personal model was measured after the last round.
    - `profile`: where the time went, if that was asked for and a round was left to do.
    - `diagnostics`: one record per round in which a metric gave more than single numbers, such as a spectrum.
    """

    history: list[RoundRecord]
    summary: dict[str, Any]
    model: TrainedModel
    path: Path | None
    clients: list[ClientRecord] = field(default_factory=list)
    profile: Profile | None = None
    diagnostics: list[RoundRecord] = field(default_factory=list)


def driver_result(setup: Setup, driver: Driver, directory: RunDirectory | None) -> Result:
    """The result of a run that just ended."""
    path = None if directory is None else directory.path
    model = TrainedModel(setup.problem.network, driver.evaluated_state, model_facts(setup.dataset))
    summary = summarise(setup, driver.history, "finished", driver.clients, changes_on_record(directory))
    return Result(driver.history, summary, model, path, driver.clients, diagnostics=driver.diagnostics)


def stored_result(directory: RunDirectory, model: nn.Module | None) -> Result | None:
    """The result of a run that ended before, read from its folder; None if the run has to go on or to be mended."""
    summary = directory.finished_summary()
    if summary is None or not is_whole(directory):
        return None
    return Result(
        directory.history(),
        summary,
        load(directory.path, model),
        directory.path,
        directory.records(CLIENTS),
        diagnostics=directory.records(DIAGNOSTICS),
    )


def finished_notes(directory: RunDirectory, changes: Sequence[Change]) -> list[str]:
    """What a user should know of a finished run: that it is finished, what was changed since, what has no effect."""
    notes = [f"'{directory.path}' is already finished."]
    if DIAGNOSTICS in directory.changed_files():
        notes.append(f"'{directory.path / DIAGNOSTICS}' was changed or removed since then; it cannot be made again.")
    seen = [str(change) for change in changes if change.is_seen]
    if seen:
        notes.append(f"a finished run takes no other settings: {', '.join(seen)} has no effect.")
    return notes


def is_whole(directory: RunDirectory) -> bool:
    """Whether a finished run has its model, and no file was changed that can be made again from the checkpoints.

    The lists of diagnostics cannot be made again. A run that an older version finished has no digests to compare.
    """
    changed = set(directory.changed_files()) - {DIAGNOSTICS}
    return not changed and (directory.path / MODEL).is_file()


def result_message(result: Result) -> tuple[dict[str, Any], Tree]:
    """A result as rank 0 sends it to the other ranks."""
    parts = {name: getattr(result, name) for name in ("history", "summary", "clients", "diagnostics")}
    return {"kind": "end", "result": parts}, dict(result.model.state_dict())


def received_result(path: Path | None, setup: Setup, parts: Mapping[str, Any], tensors: Tree) -> Result:
    """The result that rank 0 sent."""
    model = TrainedModel(setup.problem.network, setup.start, model_facts(setup.dataset))
    model.load_state_dict(tensors)
    return Result(model=model, path=path, **parts)
