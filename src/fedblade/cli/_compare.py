"""`fedblade compare`: several methods and seeds, one table, one report."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import resumable
from fedblade.cli._studies import Seeds, drawn_table, finish, parse_seeds, train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


def compare(
    source: opt.Source = None,
    methods: Annotated[str, typer.Option("--methods", metavar="A,B,C", help="Methods to compare.")] = "",
    seeds: Seeds = "",
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    engine: opt.Engine = None,
    device: opt.Device = None,
    seed: opt.Seed = None,
    jobs: opt.Jobs = "auto",
    devices: opt.Devices = "",
    threshold: opt.Threshold = None,
    quiet: opt.Quiet = False,
) -> None:
    """Run methods × seeds and print a table. The last line printed is the path of the report.

    Without a preset or file, the settings are those of the preset quickstart.

    Finished runs are skipped and runs that were cut short go on, so the same command can be repeated.

    A run that fails does not stop the others.
    """
    from rich.console import Console

    from fedblade.core.errors import Misconfigured
    from fedblade.runs import next_run_folder
    from fedblade.studies import plan_comparison, plan_jobs

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise Misconfigured(
            "nothing to compare: expected --methods a,b,c. `fedblade list methods` shows what there is."
        )
    opt.check_resumed_folder(out, resume=resume)
    folder = out or next_run_folder("compare")
    changes = opt.overrides(assignments, engine=engine, device=device, seed=seed)
    runs = plan_comparison(source, changes, names, parse_seeds(seeds, repeats=True), folder)
    planned_jobs = plan_jobs(jobs, devices, runs)
    console = Console()
    with resumable(folder, given=out is not None):
        failed = train(console, runs, planned_jobs, quiet=quiet)
        report = _publish(console, [run.folder for run in runs], folder, threshold)
    finish(report, failed, len({run.folder for run in runs}))


def _publish(console: "Console", runs: "Sequence[Path]", folder: "Path", threshold: float | None) -> "Path":
    """Print the table of the runs, and write the report of all runs in the folder.

    Both count the rounds to the same accuracy. Returns the path of the report, or the folder if there is nothing to
    report.
    """
    from fedblade.report import build_report
    from fedblade.results import SUMMARY, comparison_rows, comparison_table

    reported = [run for run in runs if (run / SUMMARY).is_file()]
    if not reported:
        return folder
    rows = comparison_rows(reported, threshold)
    console.print(drawn_table(comparison_table(rows, "terminal")))
    opt.warn_of_unreadable([*reported, folder])
    return build_report([*reported, folder], folder / "report.html", threshold=rows[0].threshold)
