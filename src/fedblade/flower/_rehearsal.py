"""A federation on this machine: the SuperLink and its nodes as real processes, over TLS and with node keys."""

import re
import shutil
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower import _certs, _processes
from fedblade.flower._app import FILE, TABLE
from fedblade.flower._control import SuperLink, write_connection
from fedblade.flower._place import Place, toml_table
from fedblade.flower._ports import LOOPBACK, free_ports
from fedblade.flower._record import Kept, Plan, PlannedNode, Record, read_record, write_plan

_MOST_NODES = 4
"""Nodes of a rehearsal unless it is told how many; each takes the memory of a whole Python with torch."""
_READY_SECONDS = 180.0
_LOOK_SECONDS = 0.2
_EARLY_ENDS = 5
"""A node that ended this often at the start will not come up by itself."""
_DOWN_SECONDS = 30.0
_LOG_LINES = 200
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def up(place: Place, nodes: int | None, *, secure: bool, note: Callable[[str], None]) -> Record:
    """Start everything and come back when all nodes are online; on failure nothing is left running."""
    _processes.require_flower()
    if _processes.running(place):
        raise Misconfigured(f"'{place.folder}' is already up. End it first: fedblade flower down {place.quoted}")
    clients = _shared_out(_num_clients(_app_tables(place)), nodes)
    ports = free_ports(len(clients) + 1)
    plan = Plan(secure, ports[0], tuple(PlannedNode(*each) for each in zip(clients, ports[1:], strict=True)))
    _lay_out(place, plan)
    supervisor = _processes.start_python(place, "fedblade.flower._supervise", "supervisor.log", str(place.folder))
    try:
        note(
            f"starting a SuperLink and {len(clients)} nodes, {'TLS and node keys' if secure else 'without encryption'}"
        )
        record = _wait_started(place, supervisor.poll)
        return _wait_online(place, record)
    except BaseException:
        down(place)
        raise


def down(place: Place) -> bool:
    """End everything that belongs to the rehearsal; whether anything ran."""
    processes = _processes.running(place)
    if processes:
        # The supervisor ends its processes in order; what it leaves behind, or all if it is gone, is ended here.
        supervisors = [each for each in processes if _is_supervisor(each)]
        _processes.end(place, supervisors, _DOWN_SECONDS)
        _processes.end_all(place, _processes.GRACE_SECONDS)
    place.state.unlink(missing_ok=True)
    return bool(processes)


def record_of(place: Place) -> Record:
    """What runs; refuses a rehearsal that is not up."""
    record = read_record(place)
    if record is None or not _processes.running(place):
        raise Misconfigured(f"'{place.folder}' is not up. Start it: fedblade flower up {place.quoted}")
    return record


def _app_tables(place: Place) -> Mapping[str, Any]:
    """The app's configuration, not yet checked; empty for an app of another kind."""
    path = place.folder / FILE
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"'{path}' is not valid TOML: {error}. Mend the file.") from error
    for name in ("federation", TABLE):
        if not isinstance(found.get(name, {}), Mapping):
            raise Misconfigured(
                f"{name} = {found[name]!r} in '{path}' is not a table; expected keys under [{name}]. Mend the file."
            )
    return found


def _num_clients(tables: Mapping[str, Any]) -> int | None:
    """How many clients share the run's data set; None for an app of another kind."""
    if tables.get(TABLE, {}).get("data") == "nodes":
        raise Misconfigured(
            'flower.data is "nodes", and nodes of a rehearsal have no data of their own. Set flower.data = "shares" in '
            f"{FILE} to rehearse with shares of dataset.name, or start nodes that have data by hand: "
            'flower-supernode --node-config \'clients="0" data="/path/to/samples.npz"\', as docs/flower.md shows.'
        )
    number = tables.get("federation", {}).get("num_clients")
    return number if isinstance(number, int) and number > 0 else None


def _shared_out(clients: int | None, nodes: int | None) -> list[str]:
    """The clients of every node, in turn; as many nodes as clients is one each."""
    if clients is None:
        return [str(number) for number in range(nodes or 2)]
    if nodes is not None and nodes > clients:
        raise Misconfigured(f"--nodes {nodes} is more than there are clients ({clients}). Ask for {clients} or fewer.")
    count = nodes or min(clients, _MOST_NODES)
    return [",".join(map(str, range(first, clients, count))) for first in range(count)]


def _lay_out(place: Place, plan: Plan) -> None:
    """Fresh logs and a fresh memory of the SuperLink, keys from the last time, a folder for every node."""
    for left in (place.logs, place.state, *place.own.glob(f"{place.database.name}*")):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    place.own.mkdir(mode=0o700, exist_ok=True)
    if plan.secure:
        _keys(place.certs, len(plan.nodes))
    authority = place.certs / _certs.CA_CERTIFICATE if plan.secure else None
    write_connection(place, f"{LOOPBACK}:{plan.port}", authority)
    for number, node in enumerate(plan.nodes, start=1):
        folder = place.node(number)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"clients": node.clients, "state-dir": str(folder / "state")}
        write_atomic(folder / "node.toml", toml_table(settings))
    write_plan(place, plan)


def _keys(folder: Path, nodes: int) -> None:
    # A command that was killed may have left some of the files; none of them is of use without the others.
    if not _certs.is_whole(folder) or _certs.days_left(folder) < 1:
        shutil.rmtree(folder, ignore_errors=True)
        _certs.make_certs(folder)
    _certs.add_node_keys(folder, nodes)


def _wait_started(place: Place, poll: Callable[[], int | None]) -> Record:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        status, record = poll(), read_record(place)
        if record is not None and record.phase == "started":
            return record
        if status is not None:
            said = record.error if record is not None else ""
            raise _failed(place, said or f"the supervisor ended with status {status}", "superlink", "supervisor")
        time.sleep(_LOOK_SECONDS)
    raise _failed(place, f"the SuperLink was not ready after {_READY_SECONDS:.0f} s", "superlink", "supervisor")


def _wait_online(place: Place, record: Record) -> Record:
    """Wait for the nodes. Without keys the SuperLink knows nodes only once they come, so they are counted."""
    deadline = time.monotonic() + _READY_SECONDS
    with SuperLink(place) as superlink:
        while True:
            online = sum(status == "online" for status in superlink.nodes().values())
            record = record_of(place)
            if online >= len(record.nodes):
                return record
            for number, node in enumerate(record.nodes, start=1):
                if node.restarts >= _EARLY_ENDS:
                    raise _failed(place, f"node {number} ends again and again (status {node.status})", f"node-{number}")
            if time.monotonic() > deadline:
                count = f"{online} of {len(record.nodes)} nodes"
                raise _failed(place, f"only {count} came online in {_READY_SECONDS:.0f} s", "superlink")
            time.sleep(_LOOK_SECONDS)


def _failed(place: Place, what: str, *logs: str) -> RunFailed:
    """The error with the last line of the first log that has one, and where the logs are."""
    said = next(filter(None, (last_complaint(place.logs / f"{log}.log") for log in logs)), "")
    return RunFailed(f"{what}{f': {said}' if said else ''}. The logs are in {place.logs}")


def last_complaint(log: Path) -> str:
    """What a log says last of an error, or else its last line."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return ""
    told = [text for line in lines if (text := _COLOUR.sub("", line).strip())]
    places = [place for place, line in enumerate(told) if "error" in line.lower()]
    if not places:
        return told[-1] if told else ""
    # Flower gives the number of an exit first, and what it means in the two lines that follow.
    line = told[places[-1]]
    return " ".join(told[places[-1] + 1 :][:2]) or line if "Exit Code" in line else line


def _is_supervisor(process: int) -> bool:
    try:
        return b"fedblade.flower._supervise" in (Path("/proc") / str(process) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def is_up(place: Place, kept: Kept) -> bool:
    """Whether a process of the record runs."""
    return kept.pid is not None and _processes.is_running(place, kept.pid)
