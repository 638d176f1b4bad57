"""`fedblade compare`: several methods and seeds, one table, one report."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import resumable
from fedblade.cli._studies import Seeds, finish, parse_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from fedblade.results import ComparisonRow


def compare(
    source: opt.Source = None,
    methods: Annotated[str, typer.Option("--methods", metavar="A,B,C", help="Methods to compare.")] = "",
    seeds: Seeds = "",
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    engine: opt.Engine = None,
    device: opt.Device = None,
    seed: opt.Seed = None,
    threshold: opt.Threshold = None,
    quiet: opt.Quiet = False,
) -> None:
    """Run methods × seeds and print a table. The last line printed is the path of the report.

    Finished runs are skipped and runs that were cut short go on, so the same command can be repeated. A run that fails
    does not stop the others.
    """
    from rich.console import Console

    from fedblade.core.errors import Misconfigured
    from fedblade.runs import next_run_folder, shown
    from fedblade.studies import plan_comparison, run_planned

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise Misconfigured(
            "nothing to compare: expected --methods a,b,c. `fedblade list methods` shows what there is."
        )
    folder = out or next_run_folder("compare")
    changes = opt.overrides(assignments, engine=engine, device=device, seed=seed)
    single = [changes.pop("seed")] if "seed" in changes else None
    runs = plan_comparison(source, changes, names, parse_seeds(seeds, repeats=True) or single, folder)
    console = Console()
    with resumable(folder, given=out is not None):
        failed = run_planned(runs, lambda label: shown(console, quiet=quiet, label=label))
        report = _publish(console, [run.folder for run in runs], folder, threshold)
    finish(report, failed, len({run.folder for run in runs}))


def _publish(console: "Console", runs: "Sequence[Path]", folder: "Path", threshold: float | None) -> "Path":
    """Print the table of the runs, and write the report of all runs in the folder.

    Both count the rounds to the same accuracy. Returns the path of the report, or the folder if there is nothing to
    report.
    """
    from fedblade.report import build_report
    from fedblade.results import SUMMARY, comparison_rows

    found = [run for run in runs if (run / SUMMARY).is_file()]
    if not found:
        return folder
    rows = comparison_rows(found, threshold)
    console.print(comparison_table(rows))
    opt.warn_of_unreadable([*found, folder])
    return build_report([*found, folder], folder / "report.html", threshold=rows[0].threshold)


def comparison_table(rows: "Sequence[ComparisonRow]") -> "Table":
    """Rows of a comparison as a table that fits eighty columns."""
    from rich.table import Table

    from fedblade.results import last_heading, measured_on

    ranked = any(row.rank == 1 for row in rows)
    goal = f"to {rows[0].threshold:g} %"
    spread = ", mean ± std over seeds (n−1)" if any(row.runs > 1 for row in rows) else ""
    caption = f"accuracy in %{spread}{', * best' if ranked else ''}; {goal}: rounds needed"
    if any(row.calibrated for row in rows):
        caption += "\n† after calibration at the end of the run"
    measured = [(row.label, row.tests_apart) for row in rows if row.own_mean is not None]
    if measured:
        caption += f"\nown: clients' own models on {measured_on(measured)}"
    caption += "".join(f"\nwatch out, {row.label}: {flag}" for row in rows for flag in row.flags)
    table = Table(show_edge=False, pad_edge=False, caption=caption, caption_justify="left")
    own = bool(measured)
    last = last_heading(count for row in rows for count in row.evaluations)
    # Eighty columns hold one or the other; the report has both.
    for heading in ("method", "runs", last, "final", goal, *(["own"] if own else ["s/round", "kB up"])):
        first = heading == "method"
        table.add_column(heading, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for row in rows:
        dagger = "†" if row.calibrated else ""
        table.add_row(
            row.label,
            f"{row.finished}/{row.runs}" + (f", {row.failed} failed" if row.failed else ""),
            ("* " if row.rank == 1 else "") + _accuracy(row.ranked_mean, row.ranked_std) + dagger,
            _accuracy(row.final_mean, row.final_std) + dagger,
            row.rounds_to_text,
            *([_accuracy(row.own_mean, row.own_std)] if own else _costs(row)),
        )
    return table


def _costs(row: "ComparisonRow") -> list[str]:
    """Seconds and kilobytes sent up, per round."""
    return [
        "–" if row.seconds_per_round is None else f"{row.seconds_per_round:.2f}",
        "–" if row.bytes_up_per_round is None else f"{row.bytes_up_per_round / 1000:.0f}",
    ]


def _accuracy(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
