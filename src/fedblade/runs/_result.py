"""The result of a run: of a run that just ended, read from a run folder, or received from rank 0."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RoundRecord
from fedblade.core.tree import Tree
from fedblade.display import Display, data_frame
from fedblade.results import (
    CLIENTS,
    DIAGNOSTICS,
    METRICS,
    MODEL,
    PARTITION,
    RunDirectory,
    RunRecord,
    Table,
    record_in_memory,
)
from fedblade.runs._changes import Change
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._client_records import ClientRecord
from fedblade.runs._diagnostic_log import DiagnosticLog
from fedblade.runs._driver import Driver
from fedblade.runs._ending import STOPPED, how_to_go_on, standing_stop
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import Profile
from fedblade.runs._request import folder_name
from fedblade.runs._result_display import result_line, result_table
from fedblade.runs._setup import Setup
from fedblade.runs._summary import partition_record, past_on_record, summarise
from fedblade.runs._trained_model import TrainedModel, load, stored_record

if TYPE_CHECKING:
    from pandas import DataFrame

Status = Literal["finished", "interrupted"]


@dataclass(frozen=True, repr=False)
class Result(Display):
    """A finished run, or the complete rounds of one without a folder that Ctrl-C has ended (`interrupted`).

    A notebook shows it as a table and a curve.

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

    def __repr__(self) -> str:
        return result_line(self.summary, self.path)

    def export(self, path: str | Path | None = None, format: str = "onnx") -> Path:  # noqa: A002 - the command's word
        """Write the trained network for other programs: `model.export`, which explains the formats."""
        return self.model.export(path, format)

    def to_pandas(self) -> "DataFrame":
        """The history as a frame of pandas with a row for each round; needs the extra `pandas`."""
        return data_frame(self.history)

    def with_all_in_memory(self) -> "Result":
        """The same result without its folder, which may be removed then."""
        diagnostics, record = self.diagnostics, self._record()
        self.model.read_record = lambda: record
        return replace(self, path=None, read_diagnostics=lambda: diagnostics)

    def _record(self) -> RunRecord:
        return self.model.read_record()

    def _records(self) -> list[RunRecord]:
        return [self._record()]

    def _title(self) -> str:
        return f"{self.summary['method']} on {self.summary['dataset']}, seed {self.summary['seed']}"

    def _tables(self) -> list[Table]:
        return [result_table(self.summary, self.path)]

    def _page(self) -> Path:
        if self.path is not None:
            return self.path / "report.html"
        return Path(f"report-{folder_name(self.summary['method'])}-seed{self.summary['seed']}.html")

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run: the result is that of the rounds before."""
        return bool(self.summary["status"] == "interrupted")

    @cached_property
    def diagnostics(self) -> list[RoundRecord]:
        """One record per round in which a metric gave more than single numbers, such as a spectrum.

        With a run folder they are read from it when they are first asked for, because those of a long run are large.
        """
        return self.read_diagnostics()


def driver_result(setup: Setup, driver: Driver, directory: RunDirectory | None, status: Status = "finished") -> Result:
    """The result of a run that just ended."""
    path = None if directory is None else directory.path
    summary = summarise(setup, driver.history, status, driver.clients, past_on_record(directory))
    diagnostics = driver.diagnostics.records
    record = (
        _record_in_memory(setup, driver.history, summary, driver.clients, diagnostics)
        if path is None
        else stored_record(path)
    )
    model = TrainedModel(setup.problem.network, driver.evaluated_state, model_facts(setup.dataset), record)
    return Result(driver.history, summary, model, path, driver.clients, read_diagnostics=diagnostics)


def _record_in_memory(
    setup: Setup,
    history: list[RoundRecord],
    summary: dict[str, Any],
    clients: list[ClientRecord],
    diagnostics: Callable[[], list[RoundRecord]],
) -> Callable[[], RunRecord]:
    """Reads a run that has no folder. What it keeps is small: no data and no model."""
    config, partition = setup.config.table(), partition_record(setup, None)
    fields = [described for metric in setup.metrics for described in metric.fields]
    return lambda: record_in_memory(
        config, summary, partition, fields, history=history, diagnostics=diagnostics(), clients=clients
    )


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
    stopped = (directory.finished_summary() or {}).get(STOPPED)
    end = "." if stopped is None else f"; it {stopped['text']}. {how_to_go_on(stopped)}"
    notes = [f"'{directory.path}' is already finished{end}"]
    if directory.changed_files([DIAGNOSTICS]):
        notes.append(f"'{directory.path / DIAGNOSTICS}' was changed or removed since then; it cannot be made again.")
    seen = [str(change) for change in changes if change.is_seen]
    if seen:
        notes.append(f"a finished run takes no other settings: {', '.join(seen)} has no effect.")
    return notes


def finished_summary(directory: RunDirectory, config: RunConfig) -> dict[str, Any] | None:
    """The summary of a run that did its rounds and whose files are whole; None for every other run.

    A run that ended before its last round did its rounds if the reason still stands.

    Three things make a run not whole: a file that was changed or is gone, the absence of a model that the checkpoints
    can give, and an end before the digests of its files were written. Diagnostics do not count, because nobody can make
    them again. A run without checkpoints is whole as long as its numbers are there. A run that an older version
    finished has no digests to compare.
    """
    summary = directory.finished_summary()
    if summary is None or not _did_its_rounds(summary, directory, config):
        return None
    changed = set(directory.changed_files()) - {DIAGNOSTICS}
    if Checkpoints(directory).newest == 0:
        changed -= {METRICS, PARTITION}
        if not (directory.path / MODEL).is_file():
            changed -= {MODEL}
    elif not (directory.path / MODEL).is_file() or not directory.is_sealed:
        changed |= {MODEL}
    return None if changed else summary


def _did_its_rounds(summary: Mapping[str, Any], directory: RunDirectory, config: RunConfig) -> bool:
    if STOPPED in summary:
        return standing_stop(directory.history(), config) is not None
    return bool(summary.get("rounds", config.federation.rounds) == config.federation.rounds)


def result_message(result: Result) -> tuple[dict[str, Any], Tree]:
    """A result as rank 0 sends it to the other ranks."""
    parts = {name: getattr(result, name) for name in ("history", "summary", "clients", "diagnostics")}
    return {"kind": "end", "result": parts}, dict(result.model.state_dict())


def received_result(path: Path | None, setup: Setup, parts: Mapping[str, Any], tensors: Tree) -> Result:
    """The result that rank 0 sent."""
    others = {name: value for name, value in parts.items() if name != "diagnostics"}

    def diagnostics() -> list[RoundRecord]:
        records: list[RoundRecord] = parts["diagnostics"]
        return records

    record = _record_in_memory(setup, others["history"], others["summary"], others["clients"], diagnostics)
    model = TrainedModel(setup.problem.network, setup.start, model_facts(setup.dataset), record)
    model.load_state_dict(tensors)
    return Result(model=model, path=path, read_diagnostics=diagnostics, **others)
