"""The status of a federation: its SuperLink, its nodes and its runs."""

from dataclasses import dataclass, field
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.flower import _processes, certificates
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record
from fedblade.flower._superlink import SuperLink
from fedblade.flower.admissions import valid_admissions
from fedblade.flower.app_folder import AppFolder


@dataclass(frozen=True)
class Status:
    """The status. `ready` is whether a run could start now: all processes run and every admitted node is online.

    The operator's pages are on `pages_port`. `warnings` are what needs care soon, such as a certificate that is about
    to end.
    """

    ready: bool
    superlink: dict[str, Any]
    nodes: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    pages_port: int | None = None
    problem: str = ""
    warnings: list[str] = field(default_factory=list)


def status_of(app: AppFolder) -> Status:
    """Look at the processes, and ask the SuperLink for its nodes and runs."""
    record = read_record(app)
    if record is None or not _processes.running(app):
        stopped = {"state": "not running", "port": None, "pid": None, "restarts": 0}
        return Status(False, stopped, [], [], problem=f"not up. Start it: {app.start_command}")
    states: dict[str, str] = {}
    runs: list[dict[str, Any]] = []
    problem = "" if record.phase == "started" else record.error or "still starting"
    superlink_is_up = record.superlink.is_up(app)
    if superlink_is_up:
        try:
            with SuperLink(app) as superlink:
                states, runs = superlink.nodes(), superlink.runs()
        except RunFailed as error:
            problem = str(error)
    else:
        problem = "the SuperLink does not run; its supervisor starts it again"
    down = [name for name, helper in record.helpers.items() if not helper.is_up(app)]
    if down and not problem:
        problem = f"helper processes do not run ({', '.join(down)}); the supervisor starts them again"
    nodes = _local_nodes(app, record, states) if record.nodes else _admitted_nodes(app, states)
    link = {"state": "running" if superlink_is_up else "not running", **_process_facts(app, record.superlink)}
    ready = not problem and all(node["state"] == "online" for node in nodes)
    warnings = certificates.expiry_warnings(app.certificates) if record.secure else []
    return Status(ready, link, nodes, [_run_facts(run) for run in runs], record.pages_port, problem, warnings)


def _local_nodes(app: AppFolder, record: FederationRecord, states: dict[str, str]) -> list[dict[str, Any]]:
    """The nodes whose processes are on this machine."""
    nodes = [
        {"node": number, "clients": node.clients, "state": _state(app, node, states), **_process_facts(app, node)}
        for number, node in enumerate(record.nodes, start=1)
    ]
    if not record.secure:
        _set_states_by_count(nodes, states)
    return nodes


def _admitted_nodes(app: AppFolder, states: dict[str, str]) -> list[dict[str, Any]]:
    """The nodes of other machines, by Flower's ids."""
    elsewhere = {"port": None, "pid": None, "restarts": None}
    return [
        {
            "node": admission.node_id,
            "clients": ",".join(map(str, admission.clients)),
            "state": states.get(admission.node_id, "unknown"),
            **elsewhere,
        }
        for admission in valid_admissions(app) or []
    ]


def _state(app: AppFolder, node: ProcessRecord, states: dict[str, str]) -> str:
    if not node.is_up(app):
        return "offline"
    return states.get(node.node_id or "", "offline")


def _set_states_by_count(nodes: list[dict[str, Any]], states: dict[str, str]) -> None:
    """Without node keys the SuperLink does not know which node is which: all are online if enough are."""
    running = [node for node in nodes if node["pid"] is not None]
    enough = sum(state == "online" for state in states.values()) >= len(running)
    for node in running:
        node["state"] = "online" if enough else "unknown"


def _process_facts(app: AppFolder, process: ProcessRecord) -> dict[str, Any]:
    return {"port": process.port, "pid": process.pid if process.is_up(app) else None, "restarts": process.restarts}


def _run_facts(run: dict[str, Any]) -> dict[str, Any]:
    """What the status says of a run, from Flower's description."""
    details = run.get("status-details")
    return {
        "run": str(run["run-id"]),
        "status": run["status"],
        "seconds": run.get("elapsed"),
        "details": None if details in (None, "N/A") else printable(str(details), REASON_CHARACTERS),
    }
