"""`fedblade flower admit` and `revoke`: which nodes may take part."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedblade.flower.admissions import Admission
    from fedblade.flower.app_folder import AppFolder

App = Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")]


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
    _tell("admitted", app, admit(app, key, _client_numbers(app, clients)))


def revoke(
    folder: App,
    client: Annotated[int, typer.Option("--client", metavar="N", min=0, help="Client whose key is revoked.")],
) -> None:
    """Revoke the key of a client: its node is cut off, and the key never comes back.

    The client keeps its number; another key can be admitted for it.
    """
    from fedblade.flower.admissions import revoke

    app = _federation(folder)
    _tell("revoked", app, revoke(app, client))


def _federation(folder: Path) -> "AppFolder":
    """The app in a folder, whose federation knows its nodes by their keys.

    A local federation has to be up: it makes new keys at each start. The coordinator of a deployed one may be down.
    """
    from fedblade.core.errors import Misconfigured
    from fedblade.flower.app_folder import find_app
    from fedblade.flower.local_federation import require_up

    app = find_app(folder)
    if not app.service.exists() and not require_up(app).secure:
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


def _tell(what: str, app: "AppFolder", admission: "Admission") -> None:
    from fedblade.flower.admissions import coordinator_is_up

    clients = ",".join(map(str, admission.clients))
    node = f", node {admission.node_id}" if admission.node_id else ""
    later = "" if coordinator_is_up(app) else ". The coordinator is down and takes this over when it starts."
    typer.echo(f"{what} for client {clients}: {admission.fingerprint}{node}{later}")
