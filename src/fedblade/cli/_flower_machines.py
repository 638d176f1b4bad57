"""`fedblade flower serve`, `join`, `node` and `digest`: the coordinator's machine and the hospitals' machines."""

from pathlib import Path
from typing import Annotated

import typer

Node = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the node.")]
_Sums = Annotated[
    Path | None,
    typer.Option(
        "--sums",
        metavar="FILE",
        help="The file of `fedblade flower sums` that you gave away: the node then reads its data in no other way.",
    ),
]
_Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="SHA256",
        help="Digest of a file with code that the node may run; may be given many times.",
    ),
]


def serve(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app, made by `fedblade flower init`.")],
    host: Annotated[str, typer.Option("--host", metavar="NAME_OR_IP", help="Address to listen on for nodes.")],
    certs: Annotated[
        Path, typer.Option("--certs", metavar="DIR", help="Folder with ca.crt, server.crt and server.key.")
    ],
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port to listen on for nodes.")] = 8443,
) -> None:
    """Run the coordinator of a federation in the foreground, until SIGTERM; for a service manager.

    Nodes reach the port, and nothing but the calls of nodes is served there. Start runs on this machine with
    `fedblade flower run`.
    """
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.digests import app_digest
    from fedblade.flower.services import serve

    app = find_app(folder)
    pin = app_digest(app)
    serve(app, host, port, certs.resolve(), lambda: typer.echo(f"nodes connect to {host}:{port} and pin {pin}"))


def join(
    folder: Node,
    coordinator: Annotated[
        str,
        typer.Option(
            "--coordinator", metavar="HOST:PORT", help="Address of the coordinator, by a name in its certificate."
        ),
    ],
    authority: Annotated[Path, typer.Option("--ca", metavar="FILE", help="The coordinator's ca.crt.")],
    clients: Annotated[str, typer.Option("--client", metavar="N[,M]", help="Clients that the node speaks for.")],
    pin: Annotated[str, typer.Option("--pin", metavar="SHA256", help="Digest of the only app that the node serves.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="The node's data: a table or an .npz file, a folder with the files train and test, FILE.py:function "
            "or module:function.",
        ),
    ] = None,
    sums: _Sums = None,
    allow: _Allow = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 or auto.")] = "auto",
) -> None:
    """Make a node on this machine: a folder with a key of its own, and settings in node.toml.

    The key never leaves the folder. Send the public key to the coordinator, who admits it.
    """
    from fedblade.flower.joining import data_source, join, sums_source
    from fedblade.flower.node_folder import NodeFolder, NodeSettings

    source = None if data is None else data_source(data)
    settings = NodeSettings(
        coordinator, clients, pin, list(allow or ()), source, device, sums=None if sums is None else sums_source(sums)
    )
    joined = join(NodeFolder(folder.resolve()), settings, authority)
    typer.echo(f"send this file to the coordinator: {joined.public_key}")
    typer.echo(f"its fingerprint, to compare by telephone: {joined.fingerprint}")
    typer.echo(str(folder))


def node(folder: Node) -> None:
    """Run a node in the foreground, until SIGTERM; for a service manager."""
    from fedblade.flower.node_folder import NodeFolder
    from fedblade.flower.services import run_node

    run_node(NodeFolder(folder.resolve()))


def digest(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
) -> None:
    """Print the digest by which nodes pin the app, and the digests of its own parts."""
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.digests import app_digest, own_part_digests

    app = find_app(folder)
    typer.echo(f"{app_digest(app)}  app")
    for name, found in own_part_digests(app).items():
        typer.echo(f"{found}  {name}")
