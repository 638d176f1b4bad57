"""`fedblade sweep`: a grid over any keys, and the best values of every method."""

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import resumable
from fedblade.cli._studies import Seeds, estimate_with_progress, finish, parse_seeds, print_lines, print_table, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from fedblade.studies import Axis, Jobs, PlannedRun, Trial

    Share = Callable[[Sequence[PlannedRun]], Jobs]


def sweep(
    source: opt.Source = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=V1,V2", help="Values of a key, or METHOD:KEY=V1,V2; may be repeated."),
    ] = None,
    seeds: Seeds = "",
    where: opt.Where = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="Choose on samples held out of the clients' training data.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Add the search space of every method to the grid; implies --validation."),
    ] = False,
    uneven: Annotated[bool, typer.Option("--uneven", help="Allow methods different numbers of trials.")] = False,
    assignments: opt.Assignments = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    engine: opt.Engine = None,
    device: opt.Device = None,
    jobs: opt.Jobs = "auto",
    devices: opt.Devices = "",
    quiet: opt.Quiet = False,
) -> None:
    """Run every combination of values and print a table. The last line printed is the path of the report.

    Without a preset or file, the other settings are those of the preset quickstart.

    A trial is one combination for one method; every method gets the same number of trials.

    Finished runs are skipped and runs that were cut short go on, so the same command can be repeated.
    """
    from rich.console import Console

    from fedblade.report import build_report
    from fedblade.runs import next_run_folder
    from fedblade.studies import parse_axis, plan_jobs, plan_sweep, tuning_axes

    opt.check_resumed_folder(out, resume=resume)
    folder, validation = out or next_run_folder("sweep"), validation or tune
    changes = opt.overrides(assignments, engine=engine, device=device)
    axes = [parse_axis(axis) for axis in grid or ()]
    axes = tuning_axes(source, where or (), changes, axes) if tune else axes
    changed = changes | ({"evaluation.on": "validation"} if validation else {})
    options: dict[str, Any] = {"where": where or (), "seeds": parse_seeds(seeds), "uneven": uneven}
    trials = plan_sweep(source, axes, folder, overrides=changed, **options)
    if tune and not quiet:
        _print_grid(axes, trials)
    share = partial(plan_jobs, jobs, devices)
    with resumable(folder, given=out is not None):
        failed, num_runs, best = _tune(Console(), trials, share, validation=validation, quiet=quiet)
        _print_commands(source, where or (), changes, best if validation else ())
        report = build_report([folder], folder / "report.html")
    finish(report, failed, num_runs)


def _print_grid(axes: "Sequence[Axis]", trials: "Sequence[Trial]") -> None:
    """Print what is tried: a line per axis, and the number of runs."""
    from rich.console import Console

    from fedblade.config.settings import show
    from fedblade.core.words import plural

    lines = [
        f"{f'{axis.method}: ' if axis.method else ''}{axis.key} = {', '.join(map(show, axis.values))}" for axis in axes
    ]
    runs, methods = sum(len(trial.runs) for trial in trials), len({trial.method for trial in trials})
    after = f"then the best of {'the method' if methods == 1 else 'each method'} is trained and tested"
    count = f"{plural(len(trials), 'trial')}, {plural(runs, 'run')} on validation data; {after}"
    print_lines(Console(), *lines, count)


def _print_commands(
    source: str | None, where: "Sequence[str]", changes: "Mapping[str, Any]", trials: "Sequence[Trial]"
) -> None:
    """Print the command that trains with the values of a trial, for every trial."""
    from rich.console import Console

    from fedblade.config.literals import literal

    for trial in trials:
        words = [source] if source else []
        words += [word for choice in where for word in ("--where", choice)]
        for key, value in {**changes, "method": trial.method, **trial.values}.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else literal(value)}"]
        print_lines(Console(), f"train {trial.method} with it: {shlex.join(['fedblade', 'run', *words])}")


def _tune(
    console: "Console", trials: "Sequence[Trial]", share: "Share", *, validation: bool, quiet: bool
) -> "tuple[dict[Path, str], int, Sequence[Trial]]":
    """Run the trials and print the best ones; returns why runs failed, the number of runs, and the best trials.

    `share` says how runs share the machine. Trials on a validation split are followed by runs of the best trials on
    the test set.
    """
    from fedblade.studies import select_best, sweep_table

    runs = [run for trial in trials for run in trial.runs]
    failed = _run(console, runs, share(runs), quiet=quiet)
    best = select_best(trials)
    print_table(console, sweep_table(trials, best, "validation" if validation else "test"))
    for method, trial in best.items():
        console.print(f"chosen for {method}: {_values(trial)}", markup=False, highlight=False)
    if not validation:
        return failed, len(runs), list(best.values())
    tested = [trial.on_test_set() for trial in best.values()]
    test_runs = [run for trial in tested for run in trial.runs]
    failed |= _run(console, test_runs, share(test_runs), quiet=quiet)
    print_table(console, sweep_table(tested, {}, "test"))
    return failed, len(runs) + len(test_runs), list(best.values())


def _run(console: "Console", runs: "Sequence[PlannedRun]", jobs: "Jobs", *, quiet: bool) -> "dict[Path, str]":
    """Print what the runs cost and do them."""
    from fedblade.core.errors import Misconfigured
    from fedblade.core.words import plural
    from fedblade.studies import find_data, refuse_outdated

    refuse_outdated(runs)
    unfinished = [run for run in runs if not run.is_finished]
    _, absent = find_data(run.config for run in unfinished)
    if absent:
        raise Misconfigured(next(iter(absent.values())))
    if unfinished:
        cost = estimate_with_progress(console, unfinished)
        print_lines(console, f"{plural(len(unfinished), 'run')} to do: {jobs.sentence(cost)}")
    return train(console, runs, jobs, quiet=quiet)


def _values(trial: "Trial") -> str:
    from fedblade.studies import value_text

    return ", ".join(f"{key} = {value_text(trial, key)}" for key in trial.values) or "nothing to choose"
