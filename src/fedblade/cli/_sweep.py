"""`fedblade sweep`: a grid over any keys, the best value of each method reported."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._cells import conclude, cost_of
from fedblade.cli._stop import resumable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from fedblade.studies import Cell, Trial


def sweep(
    source: opt.Source = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=V1,V2", help="Values of a key, or METHOD:KEY=V1,V2; may be repeated."),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="1,2,3", help="Seeds; the preset's if left out.")] = "",
    where: opt.Where = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="Choose on samples held out of the clients' training data.")
    ] = False,
    uneven: Annotated[bool, typer.Option("--uneven", help="Allow methods different numbers of trials.")] = False,
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    engine: opt.Engine = None,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
) -> None:
    """Run every combination of values, print a table; the last line printed is the path of the report.

    Every method gets the same number of trials. Runs that are finished are skipped and runs that were cut short go on.
    """
    from rich.console import Console

    from fedblade.cli._compare import parse_seeds
    from fedblade.report import build_report
    from fedblade.runs import next_run_folder
    from fedblade.studies import parse_axis, plan_sweep

    folder = out or next_run_folder("sweep")
    trials = plan_sweep(
        source,
        [parse_axis(each) for each in grid or ()],
        folder,
        overrides=opt.overrides(assignments, engine=engine, device=device),
        where=where or (),
        seeds=parse_seeds(seeds),
        uneven=uneven,
        validation=validation,
    )
    with resumable(folder, given=out is not None):
        failed, runs = _tune(Console(), trials, validation=validation, quiet=quiet)
        report = build_report([folder], folder / "report.html")
    conclude(report, failed, runs)


def _tune(
    console: "Console", trials: "Sequence[Trial]", *, validation: bool, quiet: bool
) -> "tuple[dict[Path, str], int]":
    """Run the trials and show the best of each method, tested; returns why runs failed, and how many runs there were.

    Trials on a validation split are followed by runs of the chosen ones on the test set.
    """
    from fedblade.studies import on_test_set, select_best

    runs = [run for trial in trials for run in trial.runs]
    failed = _run(console, runs, quiet=quiet)
    best = select_best(trials)
    _print(console, trials, best, "validation" if validation else "test")
    for method, trial in best.items():
        console.print(f"chosen for {method}: {_values(trial)}", markup=False, highlight=False)
    if not validation:
        return failed, len(runs)
    tested = [on_test_set(trial) for trial in best.values()]
    again = [run for trial in tested for run in trial.runs]
    failed |= _run(console, again, quiet=quiet)
    _print(console, tested, {}, "test")
    return failed, len(runs) + len(again)


def _run(console: "Console", runs: "Sequence[Cell]", *, quiet: bool) -> "dict[Path, str]":
    """Say what the runs cost and carry them out."""
    from fedblade.core.errors import Misconfigured
    from fedblade.core.words import plural
    from fedblade.runs import progress_listener
    from fedblade.studies import find_data, is_finished, refuse_outdated, run_cells

    refuse_outdated(runs)
    open_ = [run for run in runs if not is_finished(run)]
    _, absent = find_data(run.config for run in open_)
    if absent:
        raise Misconfigured(next(iter(absent.values())))
    if open_:
        text = f"{plural(len(open_), 'run')} to do: {cost_of(console, open_).sentence()}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return run_cells(runs, lambda label: progress_listener(console, quiet=quiet, label=label))


def _print(console: "Console", trials: "Sequence[Trial]", best: "Mapping[str, Trial]", on: str) -> None:
    """The table, and what its numbers are."""
    chosen = "; * chosen" if best else ""
    warning = " on the test set, so these are optimistic" if best and on == "test" else ""
    console.print(sweep_table(trials, best))
    several = any(len(trial.runs) > 1 for trial in trials)
    spread = ", mean ± std over seeds (n−1)" if several else ""
    text = f"accuracy in % on the {on} set{spread}{chosen}{warning}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def sweep_table(trials: "Sequence[Trial]", best: "Mapping[str, Trial]") -> "Table":
    """One line per trial, the chosen ones marked."""
    from rich.table import Table

    keys = list(dict.fromkeys(key for trial in trials for key in trial.values))
    table = Table(show_edge=False, pad_edge=False)
    for heading in ("method", *(key.rpartition(".")[2] for key in keys), "runs", "accuracy"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for trial in trials:
        value = trial.accuracy()
        mark = "* " if any(trial is each for each in best.values()) else ""
        accuracy = "–" if value is None else mark + value.text()
        done = f"{0 if value is None else value.runs}/{len(trial.runs)}"
        table.add_row(trial.method, *(_text(trial, key) for key in keys), done, accuracy)
    return table


def _values(trial: "Trial") -> str:
    return ", ".join(f"{key} = {_text(trial, key)}" for key in trial.values) or "nothing to choose"


def _text(trial: "Trial", key: str) -> str:
    from fedblade.config.settings import show

    return show(trial.values[key]) if key in trial.values else ""
