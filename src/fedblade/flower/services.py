"""The coordinator's service and a node's service: what a service manager runs in the foreground until SIGTERM."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.flower import _arguments, _processes, certificates
from fedblade.flower._processes import LOOPBACK, MARK
from fedblade.flower._record import FederationRecord, ProcessRecord, write_record
from fedblade.flower._superlink import write_connection
from fedblade.flower._supervisor import FEDERATION, NODE
from fedblade.flower.app_folder import AppFolder, Place
from fedblade.flower.node_folder import NodeFolder, read_settings

_MAX_PORT = 65535
_GRACE_SECONDS = 10.0
_PAGES = "pages_port"


def serve(app: AppFolder, host: str, port: int, certs: Path, ready: Callable[[], None]) -> NoReturn:
    """Become the process that keeps a coordinator running: the SuperLink, its executor and the front on the port.

    `ready` is called when nothing stands in the way any more.
    """
    _processes.require_flower()
    os.umask(_processes.PRIVATE_MASK)
    if not 0 < port <= _MAX_PORT:
        raise Misconfigured(f"--port {port} is not between 1 and {_MAX_PORT}. Give the port that nodes connect to.")
    _end_leftovers(app, f"'{app.path}' is already up. End it first: fedblade flower down {app.quoted}")
    if not app.service.exists() and app.database.exists():
        raise Misconfigured(
            f"'{app.local}' holds the files of a local federation, and its nodes have no place in a deployment. Remove "
            f"the folder, or deploy a copy of the app."
        )
    certificates.check_server_files(certs)
    app.local.mkdir(mode=0o700, exist_ok=True)
    _link(app.certificates, certs)
    app.local.chmod(0o700)
    superlink, free = _processes.free_ports(2)
    pages = _pages_port(app) or free
    service = {"host": host, "port": port, "certs": str(certs), _PAGES: pages}
    write_atomic(app.service, json.dumps(service, indent=2) + "\n")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    write_record(app, FederationRecord(True, ProcessRecord(superlink), address=address, pages_port=pages))
    write_connection(app, f"{LOOPBACK}:{superlink}", certs / certificates.CA_CERTIFICATE)
    ready()
    _become_supervisor(app, app.home, FEDERATION)


def run_node(folder: NodeFolder) -> NoReturn:
    """Become the process that keeps a node running: the SuperNode and its executor."""
    _processes.require_flower()
    os.umask(_processes.PRIVATE_MASK)
    read_settings(folder)
    _end_leftovers(folder, f"the node in '{folder.path}' runs already. End its process first.")
    _become_supervisor(folder, folder.home, NODE)


def _pages_port(app: AppFolder) -> int:
    """The port of the operator's pages when the coordinator was started last, so that it stays the same; 0 if none."""
    try:
        return int(json.loads(app.service.read_text(encoding="utf-8"))[_PAGES])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise Misconfigured(f"'{app.service}' cannot be read ({error!r}). Remove the file and start again.") from error


def _link(link: Path, target: Path) -> None:
    """Have a link lead to a folder, which may be another one than before."""
    if link.resolve() == target:
        return
    if link.is_dir() and not link.is_symlink():
        raise Misconfigured(f"'{link}' is a folder, and --certs is '{target}'. Use one of them, and remove the other.")
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=True)


def _end_leftovers(place: Place, if_supervised: str) -> None:
    """End processes whose supervisor was killed; refuse to disturb processes that are supervised."""
    processes = _processes.running(place)
    if any(_processes.is_supervisor(process) for process in processes):
        raise Misconfigured(if_supervised)
    _processes.end_all(place, _GRACE_SECONDS)


def _become_supervisor(place: Place, home: Path, kind: str) -> NoReturn:
    """Replace this process by the supervisor, so that signals for this process reach the supervisor."""
    environment = _processes.environment(home) | {MARK: str(place.local)}
    os.chdir(place.path)
    sys.stdout.flush()
    command = _arguments.module("_supervisor", kind, str(place.path))
    os.execve(command[0], command, environment)  # noqa: S606 - our own module
