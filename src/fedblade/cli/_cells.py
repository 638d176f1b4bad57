"""What `compare`, `sweep` and `reproduce` do alike before their runs start and when they are over."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fedblade.experiment._cells import Cell
    from fedblade.experiment._cost import Estimate


def cost_of(console: "Console", runs: "Sequence[Cell]") -> "Estimate":
    """What is left of the runs costs; a line of the terminal says what is being timed."""
    from fedblade.experiment._cells import rounds_behind
    from fedblade.experiment._cost import estimate

    with console.status("estimating the time") as status:
        left = [(run.config, rounds_behind(run)) for run in runs]
        return estimate(left, lambda doing: status.update(f"estimating the time: {doing}"))


def conclude(report: Path, failed: Mapping[Path, str], runs: int) -> None:
    """Print the path of the report as the last line; if runs failed, say how many and why the first did."""
    from fedblade.core.errors import RunFailed

    typer.echo(str(report))
    if failed:
        raise RunFailed(f"{len(failed)} of {runs} runs failed: {next(iter(failed.values()))}")
