"""Options that several commands share, and how they become overrides of a configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[
    str | None, typer.Argument(metavar="[PRESET or CONFIG.toml]", help="Preset or file; quickstart if left out.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="COLUMN=VALUE", help="Choose cells of a grid by a column or a variant; may be repeated."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder of the results.")]
Engine = Annotated[
    str | None, typer.Option("--engine", help="How clients are computed: auto, or one of `fedblade list engines`.")
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Jobs = Annotated[
    str,
    typer.Option("--jobs", metavar="N", help="Runs at a time; auto: as many as cores or devices, and memory, allow."),
]
Devices = Annotated[
    str, typer.Option("--devices", metavar="D,D", help="Devices that share the runs, such as cuda:0,cuda:1.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of all random numbers.")]


FromRound = Annotated[
    int | None,
    typer.Option(
        "--from-round",
        metavar="N",
        min=1,
        help="With --resume: go on from the checkpoint of round N, in a new folder beside --out.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Refuse an --out without runs; runs that are there go on in any case.")
]


def check_resumed_folder(out: Path | None, *, resume: bool) -> None:
    """With `--resume`, refuse a folder that holds nothing to go on with."""
    from fedblade.core.errors import Misconfigured
    from fedblade.results import run_folders

    if resume and out is None:
        raise Misconfigured("--resume needs the folder of the runs: --resume --out DIR.")
    if resume and out is not None and next(run_folders(out), None) is None:
        raise Misconfigured(f"there are no runs in '{out}' to go on with. Check the folder, or leave --resume out.")


def _checked_threshold(value: float | None) -> float | None:
    from fedblade.results import check_threshold

    return None if value is None else check_threshold(value)


Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="PERCENT",
        callback=_checked_threshold,
        help="Accuracy for `rounds to`; if left out, the largest multiple of 5 that half of the runs reach.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only.")]


def one_run(folder: Path) -> Path:
    """The folder of the run, or of the only run below; several runs are refused with their names."""
    from fedblade.core.errors import Misconfigured
    from fedblade.core.words import plural, short_listing
    from fedblade.results import RunDirectory, run_folders

    if RunDirectory(folder).exists or not folder.is_dir():
        return folder
    runs = list(run_folders(folder))
    if len(runs) > 1:
        names = short_listing([f"'{run}'" for run in runs])
        raise Misconfigured(f"'{folder}' holds {plural(len(runs), 'run')}; expected one. Name one of them: {names}.")
    return runs[0] if runs else folder


def warn_of_unreadable(folders: Sequence[Path]) -> None:
    """Print on standard error what cannot be read in the files of the runs, if anything."""
    from fedblade.results import read_runs, unreadable_note

    note = unreadable_note(read_runs(folders))
    if note:
        typer.echo(f"watch out: {note}", err=True)


def overrides(assignments: list[str] | None, **shortcuts: Any) -> dict[str, Any]:
    """The assignments of `--set`, and options such as `--seed` that stand for an assignment, as overrides."""
    from fedblade.config.overrides import parse_assignment

    table = dict(parse_assignment(assignment) for assignment in assignments or ())
    return table | {key: value for key, value in shortcuts.items() if value is not None}
