"""What a rehearsal is meant to run, and what of it runs: small JSON files next to the app."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower._place import Place


@dataclass(frozen=True)
class PlannedNode:
    """A node: the clients it speaks for, as its configuration says it (`0` or `0,4,8`), and its own port."""

    clients: str
    port: int


@dataclass(frozen=True)
class Plan:
    """Ports, nodes, and whether traffic is encrypted and nodes are known by their keys."""

    secure: bool
    port: int
    nodes: tuple[PlannedNode, ...]


@dataclass
class Kept:
    """A process that is kept running: its port, its id while it runs, how often it was started again.

    `status` is what it last ended with, `node_id` is how the SuperLink knows a node, where it knows them beforehand.
    """

    port: int
    clients: str = ""
    pid: int | None = None
    restarts: int = 0
    status: int | None = None
    node_id: str | None = None


@dataclass
class Record:
    """The state of a rehearsal. `error` says why it failed to start."""

    secure: bool
    superlink: Kept
    nodes: list[Kept] = field(default_factory=list)
    phase: Literal["starting", "started", "failed"] = "starting"
    error: str = ""

    @classmethod
    def planned(cls, plan: Plan) -> "Record":
        """A rehearsal of which nothing runs yet."""
        return cls(plan.secure, Kept(plan.port), [Kept(node.port, node.clients) for node in plan.nodes])


def write_plan(place: Place, plan: Plan) -> None:
    """Say what is to be run."""
    write_atomic(place.plan, json.dumps(asdict(plan), indent=2) + "\n")


def read_plan(place: Place) -> Plan:
    """What is to be run."""
    raw: dict[str, Any] = json.loads(place.plan.read_text(encoding="utf-8"))
    return Plan(raw["secure"], raw["port"], tuple(PlannedNode(**node) for node in raw["nodes"]))


def write_record(place: Place, record: Record) -> None:
    """Say what runs."""
    write_atomic(place.state, json.dumps(asdict(record), indent=2) + "\n")


def read_record(place: Place) -> Record | None:
    """What runs, or None if nothing was started or everything was ended."""
    try:
        raw: dict[str, Any] = json.loads(place.state.read_text(encoding="utf-8"))
        nodes = [Kept(**node) for node in raw.pop("nodes")]
        return Record(superlink=Kept(**raw.pop("superlink")), nodes=nodes, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunFailed(
            f"'{place.state}' cannot be read: {error}. End the rehearsal and start it again: "
            f"fedblade flower down {place.quoted}"
        ) from error
