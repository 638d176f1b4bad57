"""What `compare`, `sweep` and `reproduce` do alike when their runs are over."""

from collections.abc import Mapping
from pathlib import Path

import typer


def conclude(report: Path, failed: Mapping[Path, str], runs: int) -> None:
    """Print the path of the report as the last line; if runs failed, say how many and why the first did."""
    from fedblade.core.errors import RunFailed

    typer.echo(str(report))
    if failed:
        raise RunFailed(f"{len(failed)} of {runs} runs failed: {next(iter(failed.values()))}")
