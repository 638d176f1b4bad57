"""What `compare`, `sweep` and `reproduce` do alike before their runs start and when they are over."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fedblade.studies import Cell, Estimate


def cost_of(console: "Console", runs: "Sequence[Cell]") -> "Estimate":
    """What is left of the runs costs. A terminal shows what is being timed; elsewhere each trial has a line."""
    from fedblade.studies import estimate, rounds_behind

    trials: list[str] = []

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    with console.status("estimating the time") as status:

        def tell(doing: str) -> None:
            status.update(f"estimating the time: {doing}")

        def on_trial(doing: str) -> None:
            if not trials:
                say("estimating the time from short trials on this machine …")
            trials.append(doing)
            if console.is_terminal:
                tell(doing)
            else:
                say(f"trial {len(trials)}: {doing}")

        return estimate([(run.config, rounds_behind(run)) for run in runs], tell, on_trial)


def conclude(report: Path, failed: Mapping[Path, str], runs: int) -> None:
    """Print the path of the report as the last line; if runs failed, say how many and why the first did."""
    from fedblade.core.errors import RunFailed
    from fedblade.core.words import plural

    typer.echo(str(report))
    if failed:
        raise RunFailed(f"{len(failed)} of {plural(runs, 'run')} failed: {next(iter(failed.values()))}")
