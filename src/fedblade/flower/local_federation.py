"""A federation on one machine: the SuperLink and its nodes as real processes, with TLS and node keys."""

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower import _arguments, _processes, certificates
from fedblade.flower._processes import LOOPBACK
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower._superlink import SuperLink, write_connection
from fedblade.flower._supervisor import FEDERATION
from fedblade.flower.app_folder import CONFIG, AppFolder
from fedblade.flower.digests import app_digest, copy_own_parts
from fedblade.flower.node_folder import NodeFolder, NodeSettings, make_node, read_settings, write_settings

_MAX_NODES = 4
"""Nodes of a local federation unless `--nodes` is given; each node needs the memory of a Python process with torch."""
_READY_SECONDS = 180.0
_POLL_SECONDS = 0.2
_MAX_EARLY_ENDS = 5
"""A node that ended this often at the start will not come up by itself."""
_DOWN_SECONDS = 30.0
_LOG_LINES = 200
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def up(app: AppFolder, nodes: int | None, *, secure: bool, note: Callable[[str], None]) -> FederationRecord:
    """Start all processes and return when all nodes are online; if that fails, no process is left running."""
    _processes.require_flower()
    if app.service.exists():
        raise Misconfigured(
            f"'{app.path}' holds a deployed federation, and a local federation would replace its keys and its memory. "
            f"Use another app for a local federation: fedblade flower init DIR"
        )
    if _processes.running(app):
        raise Misconfigured(f"'{app.path}' is already up. End it first: fedblade flower down {app.quoted}")
    clients = _clients_of_nodes(_num_clients(app), nodes)
    superlink, front, *ports = _processes.free_ports(len(clients) + 2)
    node_records = [ProcessRecord(port, numbers) for port, numbers in zip(ports, clients, strict=True)]
    record = FederationRecord(secure, ProcessRecord(superlink), node_records, address=f"{LOOPBACK}:{front}")
    try:
        _write_files(app, record)
        arguments = _arguments.module("_supervisor", FEDERATION, str(app.path))
        supervisor = _processes.start(app, arguments, "supervisor.log", app.home)
        security = "TLS and node keys" if secure else "without encryption"
        note(f"starting a SuperLink and {len(clients)} nodes, {security}")
        _wait_started(app, supervisor.poll)
        return _wait_online(app)
    except BaseException:
        down(app)
        raise


def down(app: AppFolder) -> bool:
    """End all processes of the local federation; whether any process ran."""
    processes = _processes.running(app)
    if processes:
        # The supervisor ends the other processes in order. Processes that outlive the supervisor are ended here.
        supervisors = [process for process in processes if _processes.is_supervisor(process)]
        _processes.end(app, supervisors, _DOWN_SECONDS)
        _processes.end_all(app, _processes.GRACE_SECONDS)
    app.record.unlink(missing_ok=True)
    return bool(processes)


def require_up(app: AppFolder) -> FederationRecord:
    """The record of a local federation that is up; raises an error if it is not."""
    record = read_record(app)
    if record is None or not _processes.running(app):
        raise Misconfigured(f"'{app.path}' is not up. Start it: {app.start_command}")
    return record


def _num_clients(app: AppFolder) -> int:
    """The clients that share the run's data set; refuses an app whose nodes have their own data."""
    # Imported here, because it loads torch, which ending a federation and its status do not need.
    from fedblade.flower.app import read_app

    config, deployment = read_app(app.path)
    if deployment.data == "nodes":
        raise Misconfigured(
            'flower.data is "nodes", and nodes of a local federation have no data of their own. Set flower.data = '
            f'"shares" in {CONFIG} to give them shares of dataset.name, or deploy the app to nodes that have data: '
            "fedblade flower serve, and fedblade flower join --data, as docs/tutorial-hospitals.md shows."
        )
    return config.federation.num_clients


def _clients_of_nodes(num_clients: int, nodes: int | None) -> list[str]:
    """The clients of every node, dealt in turn, such as `0,4,8`."""
    if nodes is not None and nodes > num_clients:
        raise Misconfigured(
            f"--nodes {nodes} is more than there are clients ({num_clients}). Ask for {num_clients} or fewer."
        )
    count = nodes or min(num_clients, _MAX_NODES)
    return [",".join(map(str, range(first, num_clients, count))) for first in range(count)]


def _write_files(app: AppFolder, record: FederationRecord) -> None:
    """Write keys, the record and the settings of the nodes; old logs, keys and databases are removed."""
    for old in (app.logs, app.certificates, app.record, app.admissions, *app.local.glob(f"{app.database.name}*")):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    app.local.mkdir(mode=0o700, exist_ok=True)
    if record.secure:
        certificates.make_certificates(app.certificates)
    authority = app.certificates / certificates.CA_CERTIFICATE if record.secure else None
    write_connection(app, f"{LOOPBACK}:{record.superlink.port}", authority)
    pin = app_digest(app)
    for number, node in enumerate(record.nodes, start=1):
        folder = NodeFolder(app.node(number))
        for key in (folder.key, folder.public_key):
            key.unlink(missing_ok=True)
        allow = copy_own_parts(app, folder.path)
        settings = NodeSettings(record.address, node.clients, pin, allow, insecure=not record.secure)
        make_node(folder, settings, authority)
    write_record(app, record)


def trust_app(app: AppFolder, record: FederationRecord) -> None:
    """Have the nodes on this machine pin the app as it is now, and allow its own parts."""
    if not record.nodes:
        return
    pin = app_digest(app)
    for number in range(1, len(record.nodes) + 1):
        folder = NodeFolder(app.node(number))
        allow = copy_own_parts(app, folder.path)
        write_settings(folder, replace(read_settings(folder), pin=pin, allow=allow))


def _wait_started(app: AppFolder, exit_status: Callable[[], int | None]) -> None:
    """Wait until the supervisor has started all processes."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        status, record = exit_status(), read_record(app)
        if record is not None and record.phase == "started":
            return
        if status is not None:
            reason = record.error if record is not None else ""
            raise _failed(app, reason or f"the supervisor ended with status {status}", "superlink", "supervisor")
        time.sleep(_POLL_SECONDS)
    raise _failed(app, f"the SuperLink was not ready after {_READY_SECONDS:.0f} s", "superlink", "supervisor")


def _wait_online(app: AppFolder) -> FederationRecord:
    """Wait for the nodes. They are counted, because without keys the SuperLink does not know which node is which."""
    deadline = time.monotonic() + _READY_SECONDS
    with SuperLink(app) as superlink:
        while True:
            online = sum(state == "online" for state in superlink.nodes().values())
            record = require_up(app)
            if online >= len(record.nodes):
                return record
            for number, node in enumerate(record.nodes, start=1):
                if node.restarts >= _MAX_EARLY_ENDS:
                    raise _failed(
                        app, f"node {number} ends again and again (status {node.status})", f"node-{number}-supernode"
                    )
            if time.monotonic() > deadline:
                count = f"{online} of {len(record.nodes)} nodes"
                raise _failed(app, f"only {count} came online in {_READY_SECONDS:.0f} s", "superlink")
            time.sleep(_POLL_SECONDS)


def _failed(app: AppFolder, problem: str, *logs: str) -> RunFailed:
    """An error with the last error line of the first log that has a line, and with the folder of the logs."""
    line = next(filter(None, (last_error(app.logs / f"{log}.log") for log in logs)), "")
    return RunFailed(f"{problem}{f': {line}' if line else ''}. The logs are in {app.logs}")


def last_error(log: Path) -> str:
    """The last line of a log that speaks of an error; without such a line, the last line."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line for raw in text.splitlines()[-_LOG_LINES:] if (line := _COLOUR.sub("", raw).strip())]
    errors = [number for number, line in enumerate(lines) if "error" in line.lower()]
    if not errors:
        return lines[-1] if lines else ""
    # Flower writes the exit code first, and its meaning in the two lines that follow.
    line = lines[errors[-1]]
    return " ".join(lines[errors[-1] + 1 :][:2]) or line if "Exit Code" in line else line
