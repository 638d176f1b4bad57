"""Our numbers beside the published ones: lines of results, and as Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedblade import protocols
from fedblade.config.settings import lookup
from fedblade.core.registry import models
from fedblade.models import as_backbone
from fedblade.presets.grid import GridCell
from fedblade.presets.names import names_in_papers
from fedblade.presets.published import COLUMNS, Line, Published
from fedblade.results import RunDirectory
from fedblade.studies._cells import Cell, is_finished, outdated
from fedblade.studies._columns import differing, in_common
from fedblade.studies._measures import FinishedRun, Value, measure, prototype_kilobytes, read_finished, speedup
from fedblade.studies._reproduction import Plan

_DEVIATIONS = {
    "seeds": protocols.DEVIATION,
    "clients": "standard deviation over the clients of a run (n), mean over runs",
}
_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    "α": r"$\alpha$",
    "−": "$-$",
}


@dataclass(frozen=True)
class Outcome:
    """A line with our number beside it; `note` says why there is none."""

    line: Line
    ours: Value | None
    wanted: int
    note: str

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where both are plain numbers."""
        published = self.line.published
        if self.ours is None or self.ours.bound or published is None or published.mean is None or published.bounded:
            return None
        return self.ours.mean - published.mean


def deviation_note(found: Sequence[Outcome]) -> str:
    """What ± is in these lines; empty where none of ours has one."""
    over = sorted({each.ours.over for each in found if each.ours is not None and each.ours.deviation is not None})
    return " or ".join(f"ours is mean ± {_DEVIATIONS[each]}" for each in over)


def outcomes(plan: Plan, failed: Mapping[Path, str] | None = None) -> list[Outcome]:
    """The lines asked for with what the runs on disk say."""
    return [_outcome(plan, line, failed or {}) for line in plan.lines]


def markdown(title: str, found: Sequence[Outcome], remarks: Sequence[str]) -> str:
    """A Markdown table under a heading, remarks first."""
    header, rows = cells_of(found)
    body = ["| " + " | ".join(row) + " |" for row in ([header, ["---"] * len(header), *rows])]
    return "\n".join([f"# {title}", "", *(f"*{each}.*" for each in remarks), *([""] if remarks else []), *body]) + "\n"


def latex(title: str, found: Sequence[Outcome], remarks: Sequence[str]) -> str:
    """A LaTeX table for the package booktabs."""
    header, rows = cells_of(found)
    caption = ". ".join((title, *remarks))
    lines = [
        r"\begin{table}",
        rf"\caption{{{_escape(caption)}}}",
        rf"\begin{{tabular}}{{{'l' * (len(header) - 3)}rrr}}",
        r"\toprule",
        " & ".join(map(_escape, header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_escape, row)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(preset_id: str, found: Sequence[Outcome], remarks: Sequence[str]) -> str:
    """A CSV file with every column of the published results, for further work."""
    extra = list(dict.fromkeys(axis for each in found for axis in each.line.extra))
    names = ["preset", *COLUMNS, *extra, "metric", "ours_mean", "ours_std", "ours_seeds", "runs", "bound"]
    names += ["paper_mean", "paper_std", "difference", "note"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for each in found:
        ours, published = each.ours, each.line.published
        row = [preset_id, *(each.line.columns[c] for c in COLUMNS), *(each.line.extra.get(a, "") for a in extra)]
        row += [each.line.metric, *_numbers(ours.mean if ours else None, ours.std if ours else None)]
        row += [" ".join(_numbers(*ours.seeds)) if ours else ""]
        row += [str(ours.runs) if ours else "0", ours.bound if ours else ""]
        row += _numbers(published.mean if published else None, published.std if published else None, each.difference)
        writer.writerow([*row, "; ".join(filter(None, (each.note, *remarks)))])
    return text.getvalue()


def cells_of(found: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text: columns in which the lines differ, then ours, the paper's and the difference."""
    facts = [each.line.facts for each in found]
    varying = differing(facts)
    rows = [
        [*(table.get(key, "") for key in varying), _ours(each), _paper(each.line.published), _signed(each)]
        for table, each in zip(facts, found, strict=True)
    ]
    return [*(key.rpartition(".")[2] for key in varying), "ours", "paper", "difference"], rows


def planned_cells(plan: Plan) -> tuple[list[str], list[list[str]], str]:
    """Header and rows of text before anything runs, and what all lines have in common.

    A row has what tells the lines apart, the paper's number and the state, where states differ.
    """
    facts = [{**line.facts, "state": _state(plan, line)} for line in plan.lines]
    varying = [key for key in differing(facts) if key != "state"]
    last = ["state"] if len(facts) == 1 or "state" in differing(facts) else []
    rows = [
        [*(own.get(key, "") for key in varying), _paper(line.published), *(own[key] for key in last)]
        for own, line in zip(facts, plan.lines, strict=True)
    ]
    common = in_common(facts, told={*varying, *last, *plan.preset.variants})
    return [*(key.rpartition(".")[2] for key in varying), "paper", *last], rows, common


def _outcome(plan: Plan, line: Line, failed: Mapping[Path, str]) -> Outcome:
    planned = [plan.of(cell) for cell in line.cells]
    missing = list(dict.fromkeys(part for each in planned for part in each.ready.missing))
    unmeasured = [why for each in planned for metric, why in each.ready.unmeasured.items() if metric == line.metric]
    wanted = min((len(each.runs) for each in planned), default=0)
    if missing or unmeasured:
        return Outcome(line, None, wanted, f"pending: {', '.join(missing or unmeasured[:1])}")
    if any(run.folder in failed for each in planned for run in each.runs):
        return Outcome(line, None, wanted, "failed")
    ours = _value(plan, line)
    note = "" if ours is not None else _why_not(plan, line)
    if ours is not None and ours.runs < wanted:
        note = f"{ours.runs} of {wanted} runs finished"
    return Outcome(line, ours, wanted, note)


def _state(plan: Plan, line: Line) -> str:
    """How much of a line is done, or why no run gives its number."""
    planned = [plan.of(cell) for cell in line.cells]
    missing = list(dict.fromkeys(part for each in planned for part in each.ready.missing))
    if missing:
        return f"pending: {', '.join(missing)}"
    runs = [run for each in planned for run in each.runs]
    if not runs:
        return "needs no run"
    refused = len(outdated(runs))
    return f"{sum(map(is_finished, runs))} of {len(runs)} runs done" + (f", {refused} refused" if refused else "")


def _value(plan: Plan, line: Line) -> Value | None:
    kind, _, about = line.measure.partition(" ")
    if kind == "prototype_kb":
        return _prototypes(line.cells[0])
    if kind != "speedup_to":
        return measure(line.measure, _finished(plan, line.cells))
    base = _baseline(plan, line)
    rounds = [measure(f"rounds_to {about}", _finished(plan, cells)) for cells in (base, line.cells) if cells]
    return speedup(rounds[0], rounds[1]) if len(rounds) == 2 else None


def _baseline(plan: Plan, line: Line) -> tuple[GridCell, ...]:
    """Cells of the method a speed-up is relative to, in the same setting."""
    own = {**line.columns, "method": plan.preset.baseline}
    alike = (cell for cell in plan.preset.cells if cell.variants == line.cells[0].variants)
    others = ((plan.of_columns(cell), cell) for cell in alike)
    return tuple(cell for columns, cell in others if columns == own)


def _finished(plan: Plan, cells: Sequence[GridCell]) -> list[list[FinishedRun]]:
    """Finished runs per seed, of the seeds for which every cell has one."""
    per_cell = [[_read(plan, run) for run in plan.of(cell).runs] for cell in cells]
    seeds = ([run for run in seed if run is not None] for seed in zip(*per_cell, strict=False))
    return [runs for runs in seeds if len(runs) == len(cells)]


def _read(plan: Plan, run: Cell) -> FinishedRun | None:
    """A finished run that is today's; of cells nobody asked for, others may lie in the folder."""
    found = read_finished(run.folder)
    stale = found is not None and plan.today.difference(RunDirectory(run.folder), run.config)
    return None if stale else found


def _why_not(plan: Plan, line: Line) -> str:
    if not _finished(plan, line.cells):
        absent = {lookup(cell.config, "dataset") for cell in line.cells} & plan.absent.keys()
        return f"data set {absent.pop()} is not on this machine" if absent else "not run yet"
    if line.measure.startswith("speedup_to"):
        return f"needs runs of {plan.preset.baseline} that get there"
    return "the runs do not hold this number"


def _prototypes(cell: GridCell) -> Value:
    """Size of the prototypes, from the width of the model's features."""
    num_classes, image = names_in_papers()["num_classes"][lookup(cell.config, "dataset")], torch.zeros(1, 3, 32, 32)
    body = as_backbone(models.get(str(lookup(cell.config, "model"))).make((3, 32, 32)), image, num_classes).body.eval()
    with torch.no_grad():
        return prototype_kilobytes(num_classes, body(image).shape[1])


def _decimals(metric: str, value: float) -> int:
    """Digits worth showing: rounds are whole numbers unless they are a mean over seeds."""
    if metric.startswith(("rounds_to", "prototype")):
        return 0 if value == int(value) else 1
    return 1 if metric.startswith("speedup") else 2


def _ours(each: Outcome) -> str:
    if each.ours is None:
        return each.note
    decimals = _decimals(each.line.metric, each.ours.mean)
    return each.ours.text(decimals) + (f" ({each.note})" if each.note else "")


def _paper(published: Published | None) -> str:
    return "–" if published is None else published.text


def _signed(each: Outcome) -> str:
    if each.difference is None:
        return "–"
    return f"{each.difference:+.{_decimals(each.line.metric, each.difference)}f}"


def _numbers(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.6g}" for value in values]


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
