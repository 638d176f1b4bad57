"""`fedblade flower admit` and `revoke`: which nodes may take part."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedblade.flower.app_folder import AppFolder

App = Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app whose federation is up.")]


def admit(
    key: Annotated[Path, typer.Argument(metavar="KEY.pub", help="Public key that a node made and sent.")],
    folder: App,
    clients: Annotated[
        str, typer.Option("--client", metavar="N[,M]", help="Clients that the node may speak for, such as 0 or 0,3.")
    ],
) -> None:
    """Admit a node by its public key: it may take part for its clients, also in a run that goes on.

    Compare the fingerprint that is printed with the one that the node's owner sees, over a channel that you trust.
    """
    from fedblade.flower.admissions import admit

    app = _federation(folder)
    admission = admit(app, key, _client_numbers(app, clients))
    typer.echo(f"admitted for client {_shown(admission.clients)}: {admission.fingerprint}, node {admission.node_id}")


def revoke(
    folder: App,
    client: Annotated[int, typer.Option("--client", metavar="N", min=0, help="Client whose key is revoked.")],
) -> None:
    """Revoke the key of a client: its node is cut off, and the key never comes back.

    The client keeps its number; another key can be admitted for it.
    """
    from fedblade.flower.admissions import revoke

    admission = revoke(_federation(folder), client)
    typer.echo(f"revoked for client {_shown(admission.clients)}: {admission.fingerprint}, node {admission.node_id}")


def _federation(folder: Path) -> "AppFolder":
    """The app in a folder, whose federation is up and knows its nodes by their keys."""
    from fedblade.core.errors import Misconfigured
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.local_federation import require_up

    app = find_app(folder)
    if not require_up(app).secure:
        raise Misconfigured(f"'{folder}' is up without node keys (--insecure), so every node may take part.")
    return app


def _client_numbers(app: "AppFolder", given: str) -> list[int]:
    from fedblade.core.errors import Misconfigured
    from fedblade.flower.app import read_app

    num_clients = read_app(app.path)[0].federation.num_clients
    try:
        numbers = [int(number) for number in given.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(set(numbers)) < len(numbers) or not all(0 <= number < num_clients for number in numbers):
        raise Misconfigured(
            f"--client {given} does not name clients of this app. Give numbers from 0 to {num_clients - 1}, each once, "
            f"such as 0 or 0,1."
        )
    return numbers


def _shown(clients: tuple[int, ...]) -> str:
    return ",".join(map(str, clients))
