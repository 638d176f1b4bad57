"""Our numbers beside the published ones: for every line of a paper's table, what the runs on disk say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedblade.config.settings import lookup
from fedblade.core.registry import models
from fedblade.models import as_backbone
from fedblade.presets.grid import Cell
from fedblade.presets.names import names_in_papers
from fedblade.presets.published import Line, columns_of
from fedblade.studies._measures import FinishedRun, Measurement, measure, prototype_kilobytes, read_finished, speedup
from fedblade.studies._planned_run import PlannedRun, outdated_runs
from fedblade.studies._reproduction import PlannedCell, Reproduction


@dataclass(frozen=True)
class Outcome:
    """A line of a paper's table with our number; `note` says why the number is missing or from few runs."""

    line: Line
    ours: Measurement | None
    note: str

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's, where neither is a bound."""
        published = self.line.published
        if self.ours is None or self.ours.bound or published is None or published.mean is None or published.bounded:
            return None
        return self.ours.mean - published.mean


def outcomes(plan: Reproduction, failed: Mapping[Path, str] | None = None) -> list[Outcome]:
    """The outcome of every chosen line; `failed` are the folders of runs that failed."""
    return [_outcome(plan, line, failed or {}) for line in plan.lines]


def progress_of(plan: Reproduction, line: Line) -> str:
    """How many runs of a line are done, or why no run gives its number."""
    planned = [plan.planned(cell) for cell in line.cells]
    if pending := _pending_commands(planned):
        return f"pending: {', '.join(pending)}"
    runs = [run for cell in planned for run in cell.runs]
    if not runs:
        return "needs no run"
    refused = len(outdated_runs(runs))
    done = sum(run.is_finished for run in runs)
    return f"{done} of {len(runs)} runs done" + (f", {refused} refused" if refused else "")


def _outcome(plan: Reproduction, line: Line, failed: Mapping[Path, str]) -> Outcome:
    """Our number of a line, or why there is none."""
    planned = [plan.planned(cell) for cell in line.cells]
    commands = (
        _pending_commands(planned)
        or [cell.benchmarked[line.metric] for cell in planned if line.metric in cell.benchmarked][:1]
    )
    if commands:
        return Outcome(line, None, f"pending: {', '.join(commands)}")
    if any(run.folder in failed for cell in planned for run in cell.runs):
        return Outcome(line, None, "failed")
    ours = _measurement(plan, line)
    if ours is None:
        return Outcome(line, None, _why_missing(plan, line))
    wanted = min((len(cell.runs) for cell in planned), default=0)
    return Outcome(line, ours, f"{ours.runs} of {wanted} runs finished" if ours.runs < wanted else "")


def _pending_commands(planned: Sequence[PlannedCell]) -> list[str]:
    """The commands that give the numbers of cells that no run gives."""
    return list(dict.fromkeys(command for cell in planned for command in cell.pending))


def _measurement(plan: Reproduction, line: Line) -> Measurement | None:
    kind, _, threshold = line.measure.partition(" ")
    if kind == "prototype_kb":
        return _prototype_size(line.cells[0])
    if kind != "speedup_to":
        return measure(line.measure, _finished(plan, line.cells))
    baseline = _baseline(plan, line)
    if not baseline:
        return None
    first, second = (measure(f"rounds_to {threshold}", _finished(plan, cells)) for cells in (baseline, line.cells))
    return speedup(first, second)


def _baseline(plan: Reproduction, line: Line) -> tuple[Cell, ...]:
    """The cells, in the same setting, of the method that a speed-up is relative to."""
    wanted = {**line.columns, "method": plan.preset.baseline}
    same_variant = (cell for cell in plan.preset.cells if cell.variants == line.cells[0].variants)
    return tuple(cell for cell in same_variant if columns_of(cell, plan.preset.labels) == wanted)


def _finished(plan: Reproduction, cells: Sequence[Cell]) -> list[list[FinishedRun]]:
    """Finished runs by seed, of the seeds for which every cell has a finished run."""
    per_cell = [[_read(plan, run) for run in plan.planned(cell).runs] for cell in cells]
    per_seed = ([run for run in runs if run is not None] for runs in zip(*per_cell, strict=False))
    return [runs for runs in per_seed if len(runs) == len(cells)]


def _read(plan: Reproduction, run: PlannedRun) -> FinishedRun | None:
    """A finished run of today's code and data. The folder of a cell that was not chosen may hold an older run."""
    finished = read_finished(run.folder)
    outdated = finished is not None and plan.today.difference(run.directory, run.config)
    return None if outdated else finished


def _why_missing(plan: Reproduction, line: Line) -> str:
    if not _finished(plan, line.cells):
        absent = {lookup(cell.config, "dataset") for cell in line.cells} & plan.absent.keys()
        return f"data set {absent.pop()} is not on this machine" if absent else "not run yet"
    if line.measure.startswith("speedup_to"):
        return f"needs runs of {plan.preset.baseline} that get there"
    return "the runs do not hold this number"


def _prototype_size(cell: Cell) -> Measurement:
    """The size of the prototypes, from the width of the model's features."""
    num_classes = names_in_papers()["num_classes"][lookup(cell.config, "dataset")]
    image = torch.zeros(1, 3, 32, 32)
    body = as_backbone(models.get(str(lookup(cell.config, "model"))).make((3, 32, 32)), image, num_classes).body.eval()
    with torch.no_grad():
        return prototype_kilobytes(num_classes, body(image).shape[1])
