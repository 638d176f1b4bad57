"""`fedblade flower`: deployment with Flower."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._examples import epilog
from fedblade.cli._flower_admissions import admit, revoke
from fedblade.cli._flower_machines import digest, join, node, serve
from fedblade.cli._flower_tables import agree, sums
from fedblade.cli._stop import resumable

if TYPE_CHECKING:
    from fedblade.flower.federation_status import Status

flower = typer.Typer(
    name="flower",
    help="Deploy a run with Flower, or try it in a local federation on this machine.",
    no_args_is_help=True,
)
App = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the app, made by `fedblade flower init`.")]


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for certificates and keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME_OR_IP", help="Name or address that nodes connect to; may be given many times."
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, help="How long the server's certificate is valid.")
    ] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the server's certificate and key; the authority stays.")
    ] = False,
) -> None:
    """Make a certificate authority for ten years and a certificate for the coordinator.

    Existing files are never replaced, except the server's certificate and key with --renew. A node makes its own key:
    fedblade flower join.
    """
    from fedblade.flower import certificates

    if renew:
        certificates.renew_server_certificate(folder, host or (), days)
        typer.echo(
            f"{folder / certificates.SERVER_CERTIFICATE}, {certificates.SERVER_KEY}: new, valid for {days} days. The "
            f"coordinator reads them when it starts; nodes need no change"
        )
        return
    certificates.make_certificates(folder, host or (), days)
    lines = [
        f"{folder / certificates.CA_CERTIFICATE}: to the coordinator's machine and to all nodes (fedblade flower join)",
        f"{folder / certificates.SERVER_CERTIFICATE}, {certificates.SERVER_KEY}: to the coordinator's machine alone",
        f"{folder / certificates.CA_KEY}: to nobody, because its owner can pose as the coordinator. Keep it offline",
    ]
    typer.echo("\n".join(lines))


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Empty or new folder for the app.")],
    source: opt.Source = None,
    assignments: opt.Assignments = None,
) -> None:
    """Write a ready Flower app for a configuration; settings of the deployment are flower.KEY."""
    from fedblade.core.words import plural
    from fedblade.flower.new_app import make_app
    from fedblade.presets.catalogue import refuse_grid

    refuse_grid(
        source,
        "An app has one run. Write the settings of one cell into a .toml file and give that file in place of {}.",
    )
    config, deployment = make_app(folder, source, opt.overrides(assignments))
    about = f"{config.method.name} with {plural(config.federation.num_clients, 'client')}"
    shown = shlex.quote(str(folder))
    if deployment.data == "nodes":
        typer.echo(f"{about} that have data of their own. {folder / 'README.md'} says how to deploy it")
    else:
        commands = "\n".join(f"  fedblade flower {command} {shown}" for command in ("up", "run", "down"))
        typer.echo(f"{about}. Try it in a local federation on this machine:\n{commands}")
    typer.echo(str(folder))


def up(
    folder: App,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            show_default=False,
            help="Nodes that share the clients; if left out 4, or one per client if there are fewer.",
        ),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Run without TLS and without node keys.")] = False,
) -> None:
    """Start a SuperLink and nodes on this machine, with TLS and node keys; returns when all nodes are online.

    A process that ends is started again, until `fedblade flower down`.
    """
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.local_federation import up

    app = find_app(folder)
    record = up(app, nodes, secure=not insecure, note=typer.echo)
    typer.echo(f"SuperLink on port {record.superlink.port}, {len(record.nodes)} nodes online; logs in {app.logs}")
    home, shown = shlex.quote(str(app.home)), shlex.quote(str(folder))
    typer.echo(f"run it: fedblade flower run {shown}  (or: FLWR_HOME={home} flwr run {shown})")


def down(folder: App) -> None:
    """End all processes that `fedblade flower up` started."""
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.local_federation import down

    typer.echo("ended" if down(find_app(folder)) else "nothing was running")


def status(
    folder: App,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Show the SuperLink, the nodes and the runs; exit status 0 only if a run could start now."""
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.federation_status import status_of

    status = status_of(find_app(folder))
    if json:
        import json as writer

        typer.echo(writer.dumps(asdict(status), indent=2))
    else:
        _print(status)
    return 0 if status.ready else 1


def run(
    folder: App,
    out: opt.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    from_round: opt.FromRound = None,
    quiet: opt.Quiet = False,
) -> None:
    """Train once on the nodes that are up; the last line printed is the folder of the run."""
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.local_federation import require_up, trust_app
    from fedblade.runs import RunRequest, check_folder, chosen_folder, origin_notes, progress_listener

    asked = RunRequest(out=out, resume=resume, from_round=from_round)
    asked.check_options()
    app = find_app(folder)
    record = require_up(app)

    from rich.console import Console

    from fedblade.cli._run import result_sentence
    from fedblade.flower.app import read_app
    from fedblade.flower.following import follow
    from fedblade.results import RunDirectory, report_command

    config, _ = read_app(app.path)
    where = chosen_folder(asked, config)
    check_folder(RunDirectory(where), config, resume=resume)
    trust_app(app, record)
    instead = () if from_round is None else ("flower", "run", str(folder), "--resume")
    options = () if resume else ("--resume",)
    again = resumable(where, given=out is not None, options=options, command=instead)
    with again, progress_listener(Console(), quiet=quiet) as listener:
        for note in origin_notes(RunDirectory(where)):
            listener.on_note(note)
        summary = follow(app, config, where.resolve(), listener, resume=resume)
    if not quiet:
        typer.echo(result_sentence(summary))
        typer.echo(f"report: {report_command(where)}")
    typer.echo(str(where))


def _print(status: "Status") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("process", "state", "clients", "port", "pid", "restarts"):
        table.add_column(name)
    parts = [("SuperLink", status.superlink), *((f"node {node['node']}", node) for node in status.nodes)]
    for name, part in parts:
        facts = (part["state"], part.get("clients"), part["port"], part["pid"], part["restarts"])
        table.add_row(name, *("" if fact is None else str(fact) for fact in facts))
    console = Console()
    console.print(table)
    for run in status.runs:
        details = f" ({run['details']})" if run["details"] else ""
        console.print(f"run {run['run']}: {run['status']}{details}", markup=False, highlight=False, soft_wrap=True)
    pages = f"health and figures: http://127.0.0.1:{status.pages_port}/health and /metrics"
    for sentence in (pages if status.pages_port else "", *status.warnings, status.problem):
        if sentence:
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)


for command in (init, up, run, status, down, sums, agree, certs, serve, digest, admit, revoke, join, node):
    flower.command(epilog=epilog(f"flower {command.__name__}", command))(command)
