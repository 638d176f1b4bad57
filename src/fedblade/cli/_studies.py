"""What `compare`, `sweep` and `reproduce` share: seeds, the estimate of the cost, training, tables and last lines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console

    from fedblade.results import Table, TableCell
    from fedblade.studies import Estimate, Jobs, PlannedRun

Seeds = Annotated[str, typer.Option("--seeds", metavar="1,2,3", help="Seeds; the preset's if left out.")]


def parse_seeds(text: str, *, repeats: bool = False) -> list[int] | None:
    """Read seeds written as `1,2,3`; None if nothing is written. A seed may occur twice only with `repeats`."""
    from fedblade.core.errors import Misconfigured

    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        seeds = [int(part) for part in parts]
    except ValueError as error:
        raise Misconfigured(
            f"--seeds '{text}' is not a list of numbers; expected for example --seeds 1,2,3."
        ) from error
    if not repeats and len(set(seeds)) < len(seeds):
        raise Misconfigured(f"--seeds '{text}' names a seed twice, which would count one run as two. Leave it out.")
    return seeds or None


def print_lines(console: "Console", *lines: str) -> None:
    """Print lines as they are, without colours or markup."""
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def estimate_with_progress(console: "Console", runs: "Sequence[PlannedRun]") -> "Estimate":
    """Estimate what is left of the runs. A terminal shows what is timed now; elsewhere every timing has a line."""
    from fedblade.studies import estimate_cost

    timings: list[str] = []
    with console.status("estimating the time") as status:

        def show(doing: str) -> None:
            status.update(f"estimating the time: {doing}")

        def on_timing(what: str) -> None:
            if not timings:
                print_lines(console, "estimating the time from a few timed steps on this machine …")
            timings.append(what)
            if console.is_terminal:
                show(f"timing {what}")
            else:
                print_lines(console, f"timing {len(timings)}: {what}")

        return estimate_cost([(run.config, run.rounds_done) for run in runs], show, on_timing)


def train(console: "Console", runs: "Sequence[PlannedRun]", jobs: "Jobs", *, quiet: bool) -> "dict[Path, str]":
    """Do the runs that are not finished and show how they go on; returns by folder why a run failed."""
    from fedblade.runs import progress_listener
    from fedblade.studies import study_display, train_runs

    return train_runs(
        runs,
        jobs,
        lambda label: progress_listener(console, quiet=quiet, label=label),
        lambda num_runs: study_display(console, num_runs, quiet=quiet),
    )


def drawn_table(table: "Table") -> "rich.table.Table":
    """A table for the terminal: the best number has a star, notes are below."""
    from rich.table import Table

    drawn = Table(show_edge=False, pad_edge=False, caption="\n".join(table.notes) or None, caption_justify="left")
    for column in table.columns:
        drawn.add_column(
            column.heading,
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*map(_text, row))
    return drawn


def _text(cell: "TableCell") -> str:
    return ("* " if cell.rank == 1 else "") + " ".join(filter(None, (cell.text, cell.spread))) + cell.mark


def print_table(console: "Console", table: "Table") -> None:
    """Print a table, and its notes as one paragraph below it."""
    console.print(drawn_table(replace(table, notes=())))
    print_lines(console, "; ".join(table.notes))


def finish(report: Path, failed: Mapping[Path, str], num_runs: int) -> None:
    """Print the path of the report as the last line; if runs failed, raise an error with their number and a reason."""
    from fedblade.core.errors import RunFailed
    from fedblade.core.words import plural

    typer.echo(str(report))
    if failed:
        raise RunFailed(f"{len(failed)} of {plural(num_runs, 'run')} failed: {next(iter(failed.values()))}")
