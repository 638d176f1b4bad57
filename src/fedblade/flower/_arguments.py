"""The commands of the processes of a coordinator and of a node."""

import sys
from pathlib import Path

from fedblade.flower import certificates
from fedblade.flower._processes import LOOPBACK
from fedblade.flower._record import FederationRecord
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.node_folder import NodeFolder, NodeSettings


def module(name: str, *arguments: str) -> list[str]:
    """A command for a module of this package; -P keeps Python from importing from the current folder."""
    return [sys.executable, "-P", "-m", f"fedblade.flower.{name}", *arguments]


def superlink(app: AppFolder, record: FederationRecord) -> list[str]:
    """The SuperLink, on loopback."""
    security = ["--insecure"]
    if record.secure:
        folder = app.certificates
        security = ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / certificates.CA_CERTIFICATE)]
        security += ["--ssl-certfile", str(folder / certificates.SERVER_CERTIFICATE)]
        security += ["--ssl-keyfile", str(folder / certificates.SERVER_KEY)]
    address = ["--host", LOOPBACK, "--port", str(record.superlink.port)]
    return module("_superlink_process", *address, "--database", str(app.database), *_isolation(app.secret), *security)


def front(app: AppFolder, record: FederationRecord) -> list[str]:
    """The front, on the address that nodes connect to."""
    host, _, port = record.address.rpartition(":")
    target = f"{'https' if record.secure else 'http'}://{LOOPBACK}:{record.superlink.port}"
    return module("_front", str(app.path), host.strip("[]"), port, target)


def server_executor(app: AppFolder, record: FederationRecord) -> list[str]:
    """The executor that runs the servers of runs."""
    authority = str(app.certificates / certificates.CA_CERTIFICATE) if record.secure else ""
    address = f"{LOOPBACK}:{record.superlink.port}"
    return module("_server_executor", str(app.path), address, str(app.secret), authority)


def supernode(node: NodeFolder, settings: NodeSettings, port: int) -> list[str]:
    """The SuperNode, whose own port is on loopback."""
    security = ["--insecure"]
    if not settings.insecure:
        security = ["--root-certificates", str(node.authority), "--auth-supernode-private-key", str(node.key)]
    address = ["--superlink", settings.coordinator, "--host", LOOPBACK, "--port", str(port)]
    return module("_supernode_process", *address, *_isolation(node.secret), *security)


def client_executor(node: NodeFolder, port: int) -> list[str]:
    """The executor that answers the messages of runs."""
    return module("_client_executor", str(node.path), f"{LOOPBACK}:{port}")


def _isolation(secret: Path) -> list[str]:
    """Tasks are carried out by a process that knows the secret, not by processes that Flower starts."""
    return ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
