"""A small paper on digits, the two commands, and finished runs made up on disk."""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedblade.studies import PlannedRun

TINY = Path(__file__).with_name("tiny.toml")


@pytest.fixture
def tiny() -> Callable[[str], str]:
    """The name of a preset of the small paper."""
    return lambda name: f"{TINY}:{name}"


@pytest.fixture
def command() -> Callable[..., Any]:
    """Run `reproduce …`, `sweep …` or `partition …`; an error that is no exit is raised."""
    with warnings.catch_warnings():
        # typer still uses names that click has deprecated; the command line itself does not turn warnings into errors.
        warnings.simplefilter("ignore", DeprecationWarning)
        import typer
        from typer.testing import CliRunner

        from fedblade.cli._partition import partition
        from fedblade.cli._reproduce import reproduce
        from fedblade.cli._sweep import sweep
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(reproduce)
    app.command()(sweep)
    app.command()(partition)

    def run(*arguments: Any) -> Any:
        answer = CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        return answer

    return run


@pytest.fixture
def finish() -> Callable[..., None]:
    """Make a run look finished, with these test accuracies round by round and these fields of the summary."""

    def write(run: PlannedRun, accuracies: Sequence[float], **summary: Any) -> None:
        run.folder.mkdir(parents=True)
        (run.folder / "config.toml").write_text(run.config.to_toml())
        rows = [{"round": n, "test_accuracy": value, "seconds": 30.0 * n} for n, value in enumerate(accuracies, 1)]
        (run.folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run.folder / "summary.json").write_text(json.dumps({"status": "finished", **summary}))

    return write
