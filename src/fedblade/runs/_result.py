"""The result of a run: of a run that just ended, read from a run folder, or received from rank 0."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.core.listener import RoundRecord
from fedblade.core.tree import Tree
from fedblade.results import CLIENTS, RunDirectory
from fedblade.runs._diagnostic_log import DiagnosticLog
from fedblade.runs._driver import Driver
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import Profile
from fedblade.runs._setup import Setup
from fedblade.runs._summary import summarise
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


def driver_result(setup: Setup, driver: Driver, path: Path | None) -> Result:
    """The result of a run that just ended."""
    model = TrainedModel(setup.problem.network, driver.evaluated_state, model_facts(setup.dataset))
    summary = summarise(setup, driver.history, "finished", driver.clients)
    return Result(driver.history, summary, model, path, driver.clients, read_diagnostics=driver.diagnostics.records)


def stored_result(directory: RunDirectory, model: nn.Module | None) -> Result | None:
    """The result of a run that ended before, read from its folder; None if the run has not finished."""
    summary = directory.finished_summary()
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
