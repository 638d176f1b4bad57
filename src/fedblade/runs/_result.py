"""What a finished run gives back, made, read from its folder, or sent between processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.core.tree import Tree
from fedblade.results import CLIENTS, DIAGNOSTICS, RunDirectory
from fedblade.runs._driver import Driver, RoundRecord
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import Profile
from fedblade.runs._setup import Setup
from fedblade.runs._summary import summarise
from fedblade.runs._trained_model import TrainedModel, load


@dataclass(frozen=True)
class Result:
    """A finished run: one row per round, the summary, the trained network, the folder it was written to.

    `clients` has one row per client where the clients' own models were measured at the end, `profile` says where the
    time went if that was asked for and anything was left to do. `diagnostics` has one row for each round in which a
    metric found more than single numbers: spectra, matrices. In the summary, `personal_std` is the standard deviation
    of own models' accuracy over clients (n): it tells how clients differ, not how sure the mean is.
    """

    history: list[RoundRecord]
    summary: dict[str, Any]
    model: TrainedModel
    path: Path | None
    clients: list[RoundRecord] = field(default_factory=list)
    profile: Profile | None = None
    diagnostics: list[RoundRecord] = field(default_factory=list)


def result_of(setup: Setup, driver: Driver, path: Path | None) -> Result:
    model = TrainedModel(setup.problem.network, driver.measured_state, model_facts(setup.dataset))
    summary = summarise(setup, driver.history, "finished", driver.clients)
    return Result(driver.history, summary, model, path, driver.clients, diagnostics=driver.diagnostics)


def finished_result(directory: RunDirectory, model: nn.Module | None) -> Result | None:
    """The result of a run that had already ended, read back."""
    summary = directory.finished_summary()
    if summary is None:
        return None
    own = directory.rows(CLIENTS)
    rows = directory.rows(DIAGNOSTICS)
    return Result(directory.history(), summary, load(directory.path, model), directory.path, own, diagnostics=rows)


def sent_result(result: Result) -> tuple[dict[str, Any], Tree]:
    """A result as rank 0 sends it to the others."""
    parts = {name: getattr(result, name) for name in ("history", "summary", "clients", "diagnostics")}
    return {"kind": "end", "result": parts}, dict(result.model.state_dict())


def received_result(path: Path | None, setup: Setup, parts: Mapping[str, Any], tensors: Tree) -> Result:
    """The result that rank 0 sent."""
    model = TrainedModel(setup.problem.network, setup.start, model_facts(setup.dataset))
    model.load_state_dict(tensors)
    return Result(model=model, path=path, **parts)
