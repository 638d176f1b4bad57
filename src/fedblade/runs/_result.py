"""The result of a run: of a run that just ended, read from a run folder, or received from rank 0."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RoundRecord
from fedblade.core.tree import Tree
from fedblade.results import CLIENTS, DIAGNOSTICS, METRICS, MODEL, PARTITION, RunDirectory
from fedblade.runs._changes import Change
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._client_records import ClientRecord
from fedblade.runs._diagnostic_log import DiagnosticLog
from fedblade.runs._driver import Driver
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import Profile
from fedblade.runs._setup import Setup
from fedblade.runs._summary import past_on_record, summarise
from fedblade.runs._trained_model import TrainedModel, load


@dataclass(frozen=True)
class Result:
    """A finished run.

    - `history`: one record per round.
    - `summary`: the contents of `summary.json`. Its `personal_std` is the standard deviation over clients (n): it says
      how clients differ, not how certain the mean is.
    - `model`: the trained network.
    - `path`: the run folder, or None.
    - `clients`: one record per client: of its personal model after the last round, or of the global model for it.
    - `profile`: where the time went, if that was asked for and a round was left to do.
    """

    history: list[RoundRecord]
    summary: dict[str, Any]
    model: TrainedModel
    path: Path | None
    clients: list[ClientRecord] = field(default_factory=list)
    profile: Profile | None = None
    read_diagnostics: Callable[[], list[RoundRecord]] = field(default=list, repr=False, compare=False)

    @cached_property
    def diagnostics(self) -> list[RoundRecord]:
        """One record per round in which a metric gave more than single numbers, such as a spectrum.

        With a run folder they are read from it when they are first asked for, because those of a long run are large.
        """
        return self.read_diagnostics()


def driver_result(setup: Setup, driver: Driver, directory: RunDirectory | None) -> Result:
    """The result of a run that just ended."""
    path = None if directory is None else directory.path
    model = TrainedModel(setup.problem.network, driver.evaluated_state, model_facts(setup.dataset))
    summary = summarise(setup, driver.history, "finished", driver.clients, past_on_record(directory))
    return Result(driver.history, summary, model, path, driver.clients, read_diagnostics=driver.diagnostics.records)


def stored_result(directory: RunDirectory, config: RunConfig, model: nn.Module | None) -> Result | None:
    """The result of a run that ended before, read from its folder; None if the run has to go on or to be mended."""
    summary = finished_summary(directory, config)
    if summary is None:
        return None
    return Result(
        directory.history(),
        summary,
        load(directory.path, model),
        directory.path,
        directory.records(CLIENTS),
        read_diagnostics=DiagnosticLog(directory).records,
    )


def finished_notes(directory: RunDirectory, changes: Sequence[Change]) -> list[str]:
    """What a user should know of a finished run: that it is finished, what was changed since, what has no effect."""
    notes = [f"'{directory.path}' is already finished."]
    if directory.changed_files([DIAGNOSTICS]):
        notes.append(f"'{directory.path / DIAGNOSTICS}' was changed or removed since then; it cannot be made again.")
    seen = [str(change) for change in changes if change.is_seen]
    if seen:
        notes.append(f"a finished run takes no other settings: {', '.join(seen)} has no effect.")
    return notes


def finished_summary(directory: RunDirectory, config: RunConfig) -> dict[str, Any] | None:
    """The summary of a run that did all its rounds and whose files are whole; None for every other run.

    Not whole is a run with a changed file, a configuration that is gone among them, or without a model that its
    checkpoints can give, and one that was killed before the digests of its files were written. A run that was kept
    without checkpoints is whole as long as its numbers are there. Nobody can make the lists of diagnostics again. A run
    that an older version finished has no digests to compare.
    """
    summary = directory.finished_summary()
    if summary is None or summary.get("rounds", config.federation.rounds) != config.federation.rounds:
        return None
    changed = set(directory.changed_files()) - {DIAGNOSTICS}
    if Checkpoints(directory).newest == 0:
        changed -= {METRICS, PARTITION}
        if not (directory.path / MODEL).is_file():
            changed -= {MODEL}
    elif not (directory.path / MODEL).is_file() or not directory.is_sealed:
        changed |= {MODEL}
    return None if changed else summary


def result_message(result: Result) -> tuple[dict[str, Any], Tree]:
    """A result as rank 0 sends it to the other ranks."""
    parts = {name: getattr(result, name) for name in ("history", "summary", "clients", "diagnostics")}
    return {"kind": "end", "result": parts}, dict(result.model.state_dict())


def received_result(path: Path | None, setup: Setup, parts: Mapping[str, Any], tensors: Tree) -> Result:
    """The result that rank 0 sent."""
    model = TrainedModel(setup.problem.network, setup.start, model_facts(setup.dataset))
    model.load_state_dict(tensors)
    others = {name: value for name, value in parts.items() if name != "diagnostics"}
    return Result(model=model, path=path, read_diagnostics=lambda: parts["diagnostics"], **others)
