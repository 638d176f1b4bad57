"""`fedblade reproduce`: cells of a paper's table, ours beside the published numbers."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._cells import conclude, cost_of
from fedblade.cli._stop import resumable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from fedblade.studies import Cell, Outcome, Plan


def reproduce(
    preset: Annotated[str, typer.Argument(metavar="PRESET-ID or FILE.toml", help="See `fedblade list presets`.")],
    where: opt.Where = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Shorten every run to so many rounds.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="1,2,3", help="Seeds; the paper's if left out.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List cells and their cost, and stop.")] = False,
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    engine: opt.Engine = None,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
) -> None:
    """Run cells of a paper's table and print ours beside the paper's; the last line printed is the path of the report.

    Runs that are finished are skipped and runs that were cut short go on, so the same command can be repeated. Presets
    of one paper share a folder: what one has trained, the others find.
    """
    from rich.console import Console

    from fedblade.cli._compare import parse_seeds
    from fedblade.core.errors import Misconfigured
    from fedblade.runs import progress_listener
    from fedblade.studies import plan_reproduction, planned_cells, refuse_outdated, run_cells

    changes = opt.overrides(assignments, engine=engine, device=device)
    plan = plan_reproduction(
        preset, where=where or (), overrides=changes, rounds=rounds, seeds=parse_seeds(seeds), out=out
    )
    console = Console()
    if dry_run:
        header, rows, common = planned_cells(plan)
        console.print(_table(header, rows, right=("paper",)))
        _say(console, f"the same in every line: {common}")
    else:
        refuse_outdated(plan.runs)
    _announce(console, plan)
    if dry_run:
        return
    runs = plan.present_runs
    if plan.runs and not runs:
        raise Misconfigured(next(iter(plan.absent.values())))
    with resumable(plan.folder, given=out is not None):
        failed = run_cells(runs, lambda label: progress_listener(console, quiet=quiet, label=label))
        report = _publish(console, plan, failed)
    conclude(report, failed, len(runs))


def _announce(console: "Console", plan: "Plan") -> None:
    """Say what will be done and what no run gives, then what it costs, which takes a while to find out."""
    from fedblade.core.words import plural
    from fedblade.studies import is_finished, outdated

    runs, refused = plan.runs, outdated(plan.runs)
    unfinished = [run for run in runs if not is_finished(run)]
    open_ = [run for run in unfinished if run.folder not in refused]
    done = len(runs) - len(unfinished)
    counts = f"{plural(len(plan.cells), 'cell')}, {plural(len(runs), 'run')}"
    lines = [f"{plan.preset.id}: {counts}, {done} of them finished"]
    lines += [f"refused: {why}" for why in refused.values()]
    lines += [f"note: {remark}" for remark in plan.remarks]
    lines += _pending_lines(plan)
    _say(console, *lines)
    if open_:
        _announce_cost(console, plan, open_)


def _announce_cost(console: "Console", plan: "Plan", runs: "Sequence[Cell]") -> None:
    """Say what runs cost, and which data are missing."""
    cost = cost_of(console, runs)
    plan.absent.update(cost.absent)
    absent = (f"data set {name} is not here: {why}" for name, why in cost.absent.items())
    _say(console, f"to do: {cost.sentence()}", *absent)


def _say(console: "Console", *lines: str) -> None:
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _pending_lines(plan: "Plan") -> list[str]:
    """Cells and metrics that no run gives, and the command that does."""
    from fedblade.core.words import plural

    cells = Counter(part for each in plan.pending for part in each.ready.missing)
    ready = [each for each in plan.cells if not each.ready.missing]
    metrics = {pair for each in ready for pair in each.ready.unmeasured.items()}
    lines = [f"pending: {plural(count, 'cell')}, measured by {part} and by no run" for part, count in cells.items()]
    return lines + [f"{metric}: measured by {part} and by no run" for metric, part in sorted(metrics)]


def _publish(console: "Console", plan: "Plan", failed: "dict[Path, str]") -> Path:
    """Print the table and write it as CSV, Markdown, LaTeX and HTML."""
    from fedblade.core.files import write_atomic
    from fedblade.report import build_report
    from fedblade.results import RunDirectory
    from fedblade.studies import comma_separated, deviation_note, latex, markdown, outcomes

    found = outcomes(plan, failed)
    console.print(outcome_table(found))
    spread = tuple(filter(None, (deviation_note(found),)))
    _say(console, "; ".join((*spread, "difference = ours - paper", *plan.remarks)))
    title, stem = f"{plan.preset.id}: {plan.preset.summary}", plan.folder / plan.preset.id
    plan.folder.mkdir(parents=True, exist_ok=True)
    remarks = (*plan.remarks, *spread)
    write_atomic(stem.with_suffix(".md"), markdown(title, found, remarks))
    write_atomic(stem.with_suffix(".tex"), latex(title, found, remarks))
    write_atomic(stem.with_suffix(".csv"), comma_separated(plan.preset.id, found, remarks))
    folders = [run.folder for run in plan.runs if RunDirectory(run.folder).exists]
    if not folders:
        return stem.with_suffix(".md")
    heading = "; ".join(filter(None, (title, plan.variant, *plan.changes)))
    return build_report(folders, stem.with_suffix(".html"), title=heading, note=plan.preset.remark)


def outcome_table(found: "Sequence[Outcome]") -> "Table":
    """Lines of results for the terminal."""
    from fedblade.studies import cells_of

    header, rows = cells_of(found)
    return _table(header, rows, right=header[-3:])


def _table(header: "Sequence[str]", rows: "Sequence[Sequence[str]]", right: "Sequence[str]") -> "Table":
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False)
    for heading in header:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=heading in right)
    for row in rows:
        table.add_row(*row)
    return table
