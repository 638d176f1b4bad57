"""The record of a local federation: its processes, in a small JSON file in the app's folder."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower import _processes
from fedblade.flower.app_folder import AppFolder


@dataclass
class ProcessRecord:
    """A process that the supervisor keeps running: its port, its id while it runs, and how often it was restarted.

    `clients` are the clients of a node, such as `0` or `0,4,8`. `status` is the exit status of the last end. `node_id`
    is the SuperLink's id of a node; without node keys it is not known.
    """

    port: int
    clients: str = ""
    pid: int | None = None
    restarts: int = 0
    status: int | None = None
    node_id: str | None = None

    def is_up(self, app: AppFolder) -> bool:
        """Whether the process runs."""
        return self.pid is not None and _processes.is_running(app, self.pid)


@dataclass
class FederationRecord:
    """A federation of an app: the processes of its coordinator, and its nodes if they are on this machine.

    `secure` means TLS and node keys. Nodes connect to `address`, where the front listens. `helpers` are the front and
    the executors by name. `error` says why the federation did not start. The operator's pages are on `pages_port`.
    """

    secure: bool
    superlink: ProcessRecord
    nodes: list[ProcessRecord] = field(default_factory=list)
    phase: Literal["starting", "started", "failed"] = "starting"
    error: str = ""
    address: str = f"{_processes.LOOPBACK}:0"
    helpers: dict[str, ProcessRecord] = field(default_factory=dict)
    pages_port: int = 0

    def helper(self, name: str) -> ProcessRecord:
        """The record of a helper process; a new one if there is none."""
        return self.helpers.setdefault(name, ProcessRecord(0))

    def processes(self) -> dict[str, ProcessRecord]:
        """All processes by name."""
        nodes = {f"node-{number}": node for number, node in enumerate(self.nodes, 1)}
        return {"superlink": self.superlink} | nodes | self.helpers


def write_record(app: AppFolder, record: FederationRecord) -> None:
    """Store the record."""
    write_atomic(app.record, json.dumps(asdict(record), indent=2) + "\n")


def read_record(app: AppFolder) -> FederationRecord | None:
    """The record, or None if the federation was not started or was ended."""
    try:
        raw: dict[str, Any] = json.loads(app.record.read_text(encoding="utf-8"))
        nodes = [ProcessRecord(**node) for node in raw.pop("nodes")]
        helpers = {name: ProcessRecord(**helper) for name, helper in raw.pop("helpers").items()}
        return FederationRecord(helpers=helpers, superlink=ProcessRecord(**raw.pop("superlink")), nodes=nodes, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunFailed(
            f"'{app.record}' cannot be read: {error}. End the local federation and start it again: "
            f"fedblade flower down {app.quoted}"
        ) from error
