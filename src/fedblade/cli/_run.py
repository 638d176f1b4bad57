"""`fedblade run`: one training run."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import Stopped, resumable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedblade.runs.distributed import Ranks


def run(
    source: opt.Source = None,
    assignments: opt.Assignments = None,
    where: opt.Where = None,
    out: opt.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Move what is in --out aside and start again from round 0.")
    ] = False,
    from_round: opt.FromRound = None,
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

    from fedblade.results import RunDirectory, report_command
    from fedblade.runs import RunJob, RunRequest, progress_listener
    from fedblade.runs.distributed import agreed_config, agreed_folder, join_ranks

    changes = opt.overrides(assignments, engine=engine, device=device, seed=seed)
    ranks = join_ranks()
    follows = ranks is not None and not ranks.is_rank_0
    with _one_rank_speaks(ranks):
        asked = RunRequest(source, changes, where or (), out, resume, restart, from_round)
        config = agreed_config(ranks, asked)
        folder = agreed_folder(ranks, asked, config)
        instead = () if from_round is None else ("run", "--resume")
        options = () if resume else ("--resume",)
        again = resumable(folder, given=out is not None, options=options, command=instead, restart=restart)
        with again, progress_listener(Console(), quiet=quiet or follows) as listener:
            if resume and source is None and not RunDirectory(folder).exists:
                listener.on_note(f"there was no run in '{folder}'; a new one starts with the settings given here.")
            job = RunJob(config, folder, resume, restart, listener=listener, profile=profile, ranks=ranks)
            result = job.execute()
    if not quiet and result.profile is not None:
        typer.echo(result.profile.report())
    typer.echo(result_sentence(result.summary))
    if not quiet:
        typer.echo(f"report: {report_command(folder)}")
    typer.echo(str(folder))


@contextmanager
def _one_rank_speaks(ranks: "Ranks | None") -> "Iterator[None]":
    """Rank 0 prints everything, and the other ranks print nothing. If rank 0 is lost, rank 1 prints the error."""
    from fedblade.core.errors import FedbladeError
    from fedblade.runs.distributed import announce_end, must_say_why

    try:
        with _error_before_signal():
            yield
    except (FedbladeError, Stopped) as error:
        announce_end(ranks)
        if ranks is None or ranks.is_rank_0 or must_say_why(ranks):
            raise
        raise typer.Exit(128 + error.number if isinstance(error, Stopped) else error.exit_status) from error
    if ranks is not None and not ranks.is_rank_0:
        raise typer.Exit


@contextmanager
def _error_before_signal() -> "Iterator[None]":
    """Report an error, such as a lost rank, and not the signal that torchrun sends because another rank had it too."""
    from fedblade.core.errors import FedbladeError

    try:
        yield
    except Stopped as stopped:
        if isinstance(stopped.__context__, FedbladeError):
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
    if "unseen_gap" in summary:
        text += (
            f"\nglobal model on the clients' test samples: {percent('trained_clients_accuracy')} for clients that "
            f"trained, {percent('unseen_clients_accuracy')} for {plural(summary['unseen_clients'], 'unseen client')} "
            f"(a gap of {summary['unseen_gap']:.2f} points)"
        )
    if "tuned_unseen_gap" in summary:
        text += (
            f"\nafter tuning: {percent('tuned_trained_clients_accuracy')} and "
            f"{percent('tuned_unseen_clients_accuracy')} (a gap of {summary['tuned_unseen_gap']:.2f} points)"
        )
    if "stopped" in summary:
        text += f"\n{summary['stopped']['text']}"
    return text + "".join(f"\nwatch out: {flag}" for flag in summary["flags"])
