"""`fedblade run`: one training run."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import Stopped, resumable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedblade.config.run_config import RunConfig


def run(
    source: opt.Source = None,
    assignments: opt.Assignments = None,
    where: opt.Where = None,
    out: opt.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Move what is in --out aside and start again from round 0.")
    ] = False,
    engine: opt.Engine = None,
    device: opt.Device = None,
    seed: opt.Seed = None,
    quiet: opt.Quiet = False,
    profile: Annotated[bool, typer.Option("--profile", help="Write how long every stage takes, and a trace.")] = False,
) -> None:
    """Train once. The last line printed is the folder of the run.

    Without a preset or file, the preset quickstart runs. A preset that is a grid needs --where.
    """
    from rich.console import Console

    from fedblade.core.errors import Misconfigured
    from fedblade.results import report_command
    from fedblade.runs import RunJob, follow_run, next_run_folder, progress_listener, requested_config
    from fedblade.runs.distributed import agreed_config, agreed_folder, join_ranks

    def requested() -> "RunConfig":
        if (resume or restart) and out is None:
            option = "--resume" if resume else "--restart"
            raise Misconfigured(f"{option} needs the folder of the run: {option} --out DIR.")
        changes = opt.overrides(assignments, engine=engine, device=device, seed=seed)
        return requested_config(source, changes, where or (), out=out, resume=resume or restart)

    ranks = join_ranks()
    if ranks is not None and not ranks.is_rank_0:
        _follow(lambda: follow_run(ranks, out))
    config = agreed_config(ranks, requested)
    folder = out or agreed_folder(ranks, lambda: next_run_folder(config.method.name))
    again = resumable(folder, given=out is not None, options=() if resume else ("--resume",))
    with again, progress_listener(Console(), quiet=quiet) as listener, _lost_rank_before_signal():
        job = RunJob(config, folder, resume, restart, listener=listener, profile=profile, ranks=ranks)
        result = job.execute()
    if not quiet and result.profile is not None:
        typer.echo(result.profile.report())
    if not quiet:
        typer.echo(result_sentence(result.summary))
        typer.echo(f"report: {report_command(folder)}")
    typer.echo(str(folder))


def _follow(work: "Callable[[], object]") -> NoReturn:
    """Serve rank 0, which prints everything. Only if rank 0 is lost, rank 1 prints the error."""
    from fedblade.core.errors import FedbladeError
    from fedblade.runs.distributed import must_report_error

    try:
        work()
    except FedbladeError as error:
        if must_report_error(error):
            raise
        raise typer.Exit(error.exit_status) from error
    except Stopped as stopped:
        raise typer.Exit(128 + stopped.number) from stopped
    raise typer.Exit


@contextmanager
def _lost_rank_before_signal() -> "Iterator[None]":
    """Report a lost rank and not the signal that torchrun sends because of it."""
    from fedblade.core.errors import RunFailed

    try:
        yield
    except Stopped as stopped:
        if isinstance(stopped.__context__, RunFailed):
            raise stopped.__context__ from None
        raise


def result_sentence(summary: dict[str, Any]) -> str:
    """The result of a run in one line; personal models and warnings follow on further lines."""

    def percent(key: str) -> str:
        value = summary.get(key)
        return "not measured" if value is None else f"{value:.2f} %"

    from fedblade.core.words import plural
    from fedblade.results import over_last_rounds

    kind = "mean of the personal models" if summary["accuracy_of"] == "personal" else "global model"
    kind += ", claimed by the nodes" if summary["accuracy_of"] in summary.get("claimed", ()) else ""
    last = over_last_rounds([(summary.get("rounds_evaluated", summary["rounds"]), summary["rounds"])])
    text = (
        f"{summary['method']}: final accuracy {percent('final_accuracy')}, mean of {last} "
        f"{percent('last10_accuracy')} ({kind}), {plural(summary['rounds'], 'round')} in "
        f"{summary['seconds']:.1f} s of training"
    )
    if "personal_worst_decile" in summary:
        text += (
            f"\npersonal models on the test samples of their clients (dataset.test_split): mean "
            f"{percent('personal_accuracy')}, worst tenth of the clients {percent('personal_worst_decile')} (each "
            f"client in clients.jsonl)"
        )
    return text + "".join(f"\nwatch out: {flag}" for flag in summary["flags"])
