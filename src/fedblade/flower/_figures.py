"""The figures by which an operator watches a federation: rounds, clients, refusals, restarts, certificates, space."""

import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import FedbladeError
from fedblade.flower import _processes, certificates
from fedblade.flower._flwr_internals.database import known_nodes
from fedblade.flower._record import FederationRecord
from fedblade.flower.admissions import valid_admissions
from fedblade.flower.app_folder import AppFolder
from fedblade.results import HISTORY, read_lines


@dataclass(frozen=True)
class Figure:
    """A number with a name, a sentence that explains it, and the label of what it is about."""

    name: str
    meaning: str
    value: float
    label: str = ""
    kind: str = "gauge"


def figures(app: AppFolder, record: FederationRecord) -> list[Figure]:
    """All figures that can be read now; the others are left out."""
    parts = (
        _process_figures(app, record),
        _client_figures(app),
        _certificate_figures(app, record),
        _run_figures(app),
        _space_figures(app),
    )
    return [figure for part in parts for figure in _available(part)]


def problems(app: AppFolder, record: FederationRecord) -> list[str]:
    """Why the federation cannot serve a run now; empty if it can."""
    problems = [] if record.phase == "started" else [record.error or "the federation is still starting"]
    problems += [f"{name} does not run" for name, process in record.processes().items() if not process.is_up(app)]
    if record.secure:
        try:
            ended = certificates.days_left(app.certificates, certificates.SERVER_CERTIFICATE) < 0
            problems += ["the server's certificate has ended"] if ended else []
        except FedbladeError as error:
            problems.append(str(error))
    return problems


def prometheus_text(shown: Iterable[Figure]) -> str:
    """Figures in the text format of Prometheus."""
    lines: list[str] = []
    described: set[str] = set()
    for figure in shown:
        name = f"fedblade_{figure.name}"
        if name not in described:
            described.add(name)
            lines += [f"# HELP {name} {figure.meaning}", f"# TYPE {name} {figure.kind}"]
        lines.append(f"{name}{figure.label} {figure.value:.15g}")
    return "\n".join(lines) + "\n"


def _available(figures: Iterator[Figure]) -> list[Figure]:
    """The figures, or none if a file that they are read from is missing or broken."""
    try:
        return list(figures)
    except (FedbladeError, OSError):
        return []


def _process_figures(app: AppFolder, record: FederationRecord) -> Iterator[Figure]:
    for name, process in record.processes().items():
        label = f'{{process="{name}"}}'
        yield Figure("process_up", "Whether a process runs.", float(process.is_up(app)), label)
    for name, process in record.processes().items():
        label, meaning = f'{{process="{name}"}}', "How often a process was started again."
        yield Figure("process_restarts_total", meaning, process.restarts, label, "counter")
    for name, process in record.processes().items():
        size = _processes.memory(process.pid) if process.pid is not None else 0
        yield Figure("process_memory_bytes", "Memory of a process.", size, f'{{process="{name}"}}')
    everything = sum(_processes.memory(process) for process in _processes.running(app))
    yield Figure("memory_bytes", "Memory of all processes, with those of runs.", everything)


def _client_figures(app: AppFolder) -> Iterator[Figure]:
    admissions = valid_admissions(app)
    if admissions is None:
        return
    online = {node.node_id for node in known_nodes(app.database) if node.is_online}
    clients = {client: admission.node_id in online for admission in admissions for client in admission.clients}
    yield Figure("clients_online", "Admitted clients whose node is connected.", sum(clients.values()))
    yield Figure(
        "clients_missing", "Admitted clients whose node is not connected.", sum(not up for up in clients.values())
    )


def _certificate_figures(app: AppFolder, record: FederationRecord) -> Iterator[Figure]:
    for name in (certificates.SERVER_CERTIFICATE, certificates.CA_CERTIFICATE) if record.secure else ():
        left = certificates.days_left(app.certificates, name)
        yield Figure("certificate_days_left", "Days until a certificate ends.", left, f'{{file="{name}"}}')


def _run_figures(app: AppFolder) -> Iterator[Figure]:
    """Figures of the run that was started last; its folder is the one that `fedblade flower run` was given."""
    folder = _last_run(app)
    if folder is None or not folder.is_dir():
        return
    rounds: list[dict[str, Any]] = read_lines(folder / HISTORY, by_round=True).objects
    refused = sum(row.get("count_refused_replies", 0) for row in rounds)
    yield Figure("rounds_done", "Rounds that the last run has done.", len(rounds))
    yield Figure("refused_replies_total", "Replies that the last run refused.", refused, kind="counter")
    if rounds:
        yield Figure("last_round_seconds", "How long the last round took.", rounds[-1].get("seconds", 0.0))
        missing = rounds[-1].get("count_missing_clients", 0)
        yield Figure("last_round_missing_clients", "Clients of the last round that did not take part.", missing)
        since = time.time() - (folder / HISTORY).stat().st_mtime
        yield Figure("seconds_since_last_round", "How long ago the last round ended.", since)


def _space_figures(app: AppFolder) -> Iterator[Figure]:
    database = sum(file.stat().st_size for file in app.local.glob(f"{app.database.name}*"))
    logs = sum(file.stat().st_size for file in app.logs.iterdir())
    yield Figure("database_bytes", "Size of the SuperLink's database.", database)
    yield Figure("log_bytes", "Size of all logs.", logs)


def _last_run(app: AppFolder) -> Path | None:
    try:
        return Path(str(tomllib.loads(app.last_run.read_text(encoding="utf-8"))["run-dir"]))
    except (OSError, ValueError, KeyError):
        return None
