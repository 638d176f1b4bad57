"""What left the clients of a run, read from the run's method."""

from collections.abc import Mapping
from typing import Any

from fedblade.config.run_config import complete_config
from fedblade.core.errors import FedbladeError
from fedblade.core.sums import Sum
from fedblade.results import RunRecord, finite_number, markdown_texts, size

_DEPLOYED = "flower"
_MEANING = {
    "delta": "change of the trained weights in the round, times the client's weight",
    "buffers": "statistics of the normalisation layers, times the client's weight",
    "counters": "counters of the normalisation layers",
    "weight": "weight of the client, by default its number of samples",
    "prototypes": "sums of the features of each class, and the numbers of samples in them",
    "label_counts": "number of samples of each class",
}
_WHEN = {
    "before_run": "once, before the first round",
    "after_round": "after each round",
    "after_run": "once, at the end",
}
_COMBINED = {"sum": "sum over clients", "max": "maximum over clients", "each": "kept apart for each client"}


def payload_section(run: RunRecord) -> str:
    """The sums of the method, their bytes, and where the run was computed."""
    if run.summary.get("engine") == _DEPLOYED:
        place = "Clients trained on nodes of their own. Samples, labels and states of clients stayed on the nodes."
    else:
        place = (
            "This run was a simulation: all clients were computed on machines of one owner. Deployed, the clients of "
            "this method would send the sums below. Samples and labels would stay."
        )
    rows = _rows(run.config)
    table = "" if rows is None else markdown_texts(("sum", "when", "how it is combined", "what"), rows)
    up = finite_number(run.summary.get("bytes_up"))
    total = "" if up is None else f"All clients together sent {size(up)} in {run.rounds_done} rounds."
    once = "Before the first round, each node tells its number of samples of each class and the shape of a sample."
    return "\n\n".join(part for part in (place, table, total, once) if part)


def _rows(config: Mapping[str, Any]) -> list[tuple[str, str, str, str]] | None:
    """A row for each sum; None if the method cannot be built here, such as one of a file that is gone."""
    try:
        method = complete_config(config).build_method()
    except FedbladeError:
        return None
    rows = [_row(payload, "each round") for payload in method.sums]
    for exchange in method.exchanges:
        rows += [_row(payload, _WHEN[exchange.when]) for payload in exchange.sums]
    return rows


def _row(payload: Sum, when: str) -> tuple[str, str, str, str]:
    by_class = "a row for each class of the client, so that the server sees which classes it has"
    meaning = _MEANING.get(payload.name, "a sum of this method: `fedblade show` explains the method")
    return (
        f"`{payload.name}`",
        when,
        _COMBINED[payload.reduce],
        f"{meaning}; {by_class}" if payload.by_class else meaning,
    )
