"""`fedblade reproduce`: cells of a paper's table, our numbers beside the published ones."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import resumable
from fedblade.cli._studies import estimate_with_progress, finish, parse_seeds, print_lines, print_table, train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from fedblade.studies import Jobs, PlannedRun, Reproduction


def reproduce(
    preset: Annotated[str, typer.Argument(metavar="PRESET-ID or FILE.toml", help="See `fedblade list presets`.")],
    where: opt.Where = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Shorten every run to this many rounds.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="1,2,3", help="Seeds; the paper's if left out.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List cells and their cost, and stop.")] = False,
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    engine: opt.Engine = None,
    device: opt.Device = None,
    jobs: opt.Jobs = "auto",
    devices: opt.Devices = "",
    quiet: opt.Quiet = False,
) -> None:
    """Run cells of a paper's table and print our numbers beside the paper's. The last line is the path of the report.

    `fedblade list presets` names the tables and figures.

    Finished runs are skipped and runs that were cut short go on, so the same command can be repeated.

    Presets of one paper share a folder: a run of one table is not repeated for another.
    """
    from rich.console import Console

    from fedblade.core.errors import Misconfigured
    from fedblade.studies import plan_jobs, plan_reproduction, planned_table, refuse_outdated

    changes = opt.overrides(assignments, engine=engine, device=device)
    plan = plan_reproduction(
        preset, where=where or (), overrides=changes, rounds=rounds, seeds=parse_seeds(seeds), out=out
    )
    opt.check_resumed_folder(plan.folder, resume=resume)
    planned_jobs = plan_jobs(jobs, devices, plan.runs)
    console = Console()
    if dry_run:
        print_table(console, planned_table(plan))
    else:
        refuse_outdated(plan.runs)
    _announce(console, plan, planned_jobs)
    if dry_run:
        return
    runs = plan.present_runs
    if plan.runs and not runs:
        raise Misconfigured(next(iter(plan.absent.values())))
    with resumable(plan.folder, given=out is not None):
        failed = train(console, runs, planned_jobs, quiet=quiet)
        report = _publish(console, plan, failed)
    finish(report, failed, len(runs))


def _announce(console: "Console", plan: "Reproduction", jobs: "Jobs") -> None:
    """Print what will run and what no run gives, then the cost, which takes a while to estimate."""
    from fedblade.core.words import plural
    from fedblade.studies import outdated_runs

    runs, refused = plan.runs, outdated_runs(plan.runs)
    unfinished = [run for run in runs if not run.is_finished]
    counts = f"{plural(len(plan.cells), 'cell')}, {plural(len(runs), 'run')}"
    lines = [f"{plan.preset.id}: {counts}, {len(runs) - len(unfinished)} of them finished"]
    lines += [f"refused: {why}" for why in refused.values()]
    lines += [f"note: {remark}" for remark in plan.remarks]
    print_lines(console, *lines, *_pending_lines(plan))
    left = [run for run in unfinished if run.folder not in refused]
    if left:
        _announce_cost(console, plan, left, jobs)


def _announce_cost(console: "Console", plan: "Reproduction", runs: "Sequence[PlannedRun]", jobs: "Jobs") -> None:
    """Print what the runs cost and which data are missing."""
    cost = estimate_with_progress(console, runs)
    plan.absent.update(cost.absent)
    absent = (f"data set {name} is not here: {why}" for name, why in cost.absent.items())
    print_lines(console, f"to do: {jobs.sentence(cost)}", *absent)


def _pending_lines(plan: "Reproduction") -> list[str]:
    """The cells and metrics that no run gives, with the command that measures them."""
    from fedblade.core.words import plural

    cells = Counter(command for cell in plan.pending for command in cell.pending)
    metrics = {pair for cell in plan.cells if not cell.pending for pair in cell.benchmarked.items()}
    lines = [
        f"pending: {plural(count, 'cell')}, measured by {command} and by no run" for command, count in cells.items()
    ]
    return lines + [f"{metric}: measured by {command} and by no run" for metric, command in sorted(metrics)]


def _publish(console: "Console", plan: "Reproduction", failed: "dict[Path, str]") -> Path:
    """Print the table and write it as CSV, Markdown, LaTeX and HTML; returns the path of the page."""
    from fedblade.core.files import write_atomic
    from fedblade.report import build_report
    from fedblade.studies import outcome_files, outcome_table, outcomes

    title, stem = f"{plan.preset.id}: {plan.preset.summary}", plan.folder / plan.preset.id
    results = outcomes(plan, failed)
    print_table(console, outcome_table(results, plan.remarks))
    plan.folder.mkdir(parents=True, exist_ok=True)
    for ending, text in outcome_files(plan, results).items():
        write_atomic(stem.with_suffix(ending), text)
    folders = [run.folder for run in plan.runs if run.directory.exists]
    if not folders:
        return stem.with_suffix(".md")
    heading = "; ".join(filter(None, (title, plan.variant, *plan.changes)))
    return build_report(folders, stem.with_suffix(".html"), title=heading, note=plan.preset.remark)
