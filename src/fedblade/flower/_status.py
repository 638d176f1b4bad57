"""How a rehearsal is: its SuperLink, its nodes and the runs it has seen."""

from dataclasses import dataclass
from typing import Any

from fedblade.core.errors import RunFailed
from fedblade.engines.nodes import LONGEST, printable
from fedblade.flower import _processes
from fedblade.flower._control import SuperLink
from fedblade.flower._place import Place
from fedblade.flower._record import Kept, read_record
from fedblade.flower._rehearsal import is_up


@dataclass(frozen=True)
class Status:
    """What was found. `ready` is whether a run could start now: everything runs and every node is online."""

    ready: bool
    superlink: dict[str, Any]
    nodes: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    problem: str = ""


def status_of(place: Place) -> Status:
    """Look at the processes, and ask the SuperLink what it knows."""
    record = read_record(place)
    if record is None or not _processes.running(place):
        off = {"state": "not running", "port": None, "pid": None, "restarts": 0}
        return Status(False, off, [], [], f"not up. Start it: fedblade flower up {place.quoted}")
    known: dict[str, str] = {}
    runs: list[dict[str, Any]] = []
    problem = "" if record.phase == "started" else record.error or "still starting"
    if is_up(place, record.superlink):
        try:
            with SuperLink(place) as superlink:
                known, runs = superlink.nodes(), superlink.runs()
        except RunFailed as error:
            problem = str(error)
    else:
        problem = "the SuperLink does not run; its supervisor starts it again"
    nodes = [
        {"node": number, "clients": node.clients, "state": _state(place, node, known), **_facts(place, node)}
        for number, node in enumerate(record.nodes, start=1)
    ]
    if not record.secure:
        _count_online(nodes, known)
    link = {"state": "running" if is_up(place, record.superlink) else "not running", **_facts(place, record.superlink)}
    ready = not problem and all(node["state"] == "online" for node in nodes)
    return Status(ready, link, nodes, [_run(each) for each in runs], problem)


def _state(place: Place, node: Kept, known: dict[str, str]) -> str:
    if not is_up(place, node):
        return "offline"
    return known.get(node.node_id or "", "offline")


def _count_online(nodes: list[dict[str, Any]], known: dict[str, str]) -> None:
    """Without keys nobody knows which node is which: those that run are online if as many are."""
    running = [node for node in nodes if node["pid"] is not None]
    enough = sum(state == "online" for state in known.values()) >= len(running)
    for node in running:
        node["state"] = "online" if enough else "unknown"


def _facts(place: Place, kept: Kept) -> dict[str, Any]:
    return {"port": kept.port, "pid": kept.pid if is_up(place, kept) else None, "restarts": kept.restarts}


def _run(told: dict[str, Any]) -> dict[str, Any]:
    details = told.get("status-details")
    return {
        "run": str(told["run-id"]),
        "status": told["status"],
        "seconds": told.get("elapsed"),
        "details": None if details in (None, "N/A") else printable(str(details), LONGEST),
    }
