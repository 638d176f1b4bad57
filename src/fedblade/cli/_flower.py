"""`fedblade flower`: deployment with Flower."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedblade.cli import _options as opt
from fedblade.cli._stop import resumable

if TYPE_CHECKING:
    from fedblade.flower import Status

flower = typer.Typer(
    name="flower", help="Deploy a run with Flower, or rehearse that on this machine.", no_args_is_help=True
)
App = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the app, made by `fedblade flower init`.")]


@flower.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for certificates and keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME_OR_IP", help="What nodes connect to; may be given many times."),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=0, help="How many node keys to make.")] = 0,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="How long certificates are valid.")] = 365,
) -> None:
    """Make a certificate authority, a certificate for the SuperLink and keys for nodes.

    Nothing is ever replaced.
    """
    from fedblade.flower import _certs

    _certs.make_certs(folder, host or (), nodes, days)
    lines = [
        f"{folder / _certs.CA_CERTIFICATE}: to everybody; the SuperLink, all nodes and whoever starts runs",
        f"{folder / _certs.SERVER_CERTIFICATE}, {_certs.SERVER_KEY}: to the machine of the SuperLink",
    ]
    if nodes:
        keys = _certs.node_key(1) if nodes == 1 else f"{_certs.node_key(1)} … {_certs.node_key(nodes)}"
        lines.append(f"{folder / keys}: each to one node, by a safe way, and then not kept here")
        lines.append(f"{folder / '*.pub'}: registered with the SuperLink (flwr supernode register KEY.pub)")
    lines.append(f"{folder / _certs.CA_KEY}: to nobody; whoever has it can pose as the SuperLink. Keep it offline")
    typer.echo("\n".join(lines))


@flower.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Empty or new folder for the app.")],
    source: opt.Source = None,
    assignments: opt.Assignments = None,
) -> None:
    """Write a ready Flower app around a configuration; its terms of deployment are set as flower.KEY."""
    from fedblade.flower import make_app

    config, deployment = make_app(folder, source, opt.overrides(assignments))
    about, shown = f"{config.method.name} with {config.federation.num_clients} clients", shlex.quote(str(folder))
    if deployment.data == "nodes":
        typer.echo(f"{about} that have data of their own. {folder / 'README.md'} says how to deploy it")
    else:
        commands = "\n".join(f"  fedblade flower {each} {shown}" for each in ("up", "run", "down"))
        typer.echo(f"{about}. Rehearse it on this machine:\n{commands}")
    typer.echo(str(folder))


@flower.command()
def up(
    folder: App,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", metavar="N", min=1, show_default=False, help="How many nodes share the clients; 4 or fewer."
        ),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Neither TLS nor node keys.")] = False,
) -> None:
    """Start a SuperLink and nodes on this machine, with TLS and node keys; returns when all nodes are online.

    A process that ends is started again, until `fedblade flower down`.
    """
    from fedblade.flower import app_place, up

    place = app_place(folder)
    record = up(place, nodes, secure=not insecure, note=typer.echo)
    typer.echo(f"SuperLink on port {record.superlink.port}, {len(record.nodes)} nodes online; logs in {place.logs}")
    home, app = shlex.quote(str(place.home)), shlex.quote(str(folder))
    typer.echo(f"run it: fedblade flower run {app}  (or: FLWR_HOME={home} flwr run {app})")


@flower.command()
def down(folder: App) -> None:
    """End everything that `fedblade flower up` started; no harm if nothing runs."""
    from fedblade.flower import app_place, down

    typer.echo("ended" if down(app_place(folder)) else "nothing was running")


@flower.command()
def status(
    folder: App,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Show the SuperLink, the nodes and the runs; exit status 0 only if everything is there for a run."""
    from fedblade.flower import app_place, status_of

    found = status_of(app_place(folder))
    if json:
        import json as writer

        typer.echo(writer.dumps(asdict(found), indent=2))
    else:
        _print(found)
    return 0 if found.ready else 1


@flower.command()
def run(
    folder: App,
    out: opt.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    quiet: opt.Quiet = False,
) -> None:
    """Train once on the nodes that are up; the last line printed is the folder of the run."""
    from fedblade.core.errors import Misconfigured
    from fedblade.flower import app_place, importable, record_of

    if resume and out is None:
        raise Misconfigured("--resume needs the folder of the run: --resume --out DIR.")
    place = app_place(folder)
    record_of(place)

    from rich.console import Console

    from fedblade.cli._run import _sentence
    from fedblade.flower import follow, read_app
    from fedblade.results import RunDirectory
    from fedblade.runs import check_folder, next_run_folder, progress_listener

    with importable(place.folder):
        config, _ = read_app(place.folder)
    where = out or next_run_folder(config.method.name)
    check_folder(RunDirectory(where), config, resume=resume)
    again = resumable(where, given=out is not None, options=() if resume else ("--resume",))
    with again, progress_listener(Console(), quiet=quiet) as listener:
        summary = follow(place, config, where.resolve(), listener, resume=resume)
    if not quiet:
        typer.echo(_sentence(summary))
        typer.echo(f"report: fedblade report {where}")
    typer.echo(str(where))


def _print(found: "Status") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("process", "state", "clients", "port", "pid", "restarts"):
        table.add_column(name)
    parts = [("SuperLink", found.superlink), *((f"node {node['node']}", node) for node in found.nodes)]
    for name, part in parts:
        facts = (part["state"], part.get("clients"), part["port"], part["pid"], part["restarts"])
        table.add_row(name, *("" if fact is None else str(fact) for fact in facts))
    console = Console()
    console.print(table)
    for each in found.runs:
        details = f" ({each['details']})" if each["details"] else ""
        console.print(f"run {each['run']}: {each['status']}{details}", markup=False, highlight=False, soft_wrap=True)
    if found.problem:
        console.print(found.problem, markup=False, highlight=False, soft_wrap=True)
