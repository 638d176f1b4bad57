"""The set-up of a run on a node, and the parts of a request in terms of that set-up."""

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedblade.config.run_config import complete_config
from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.errors import Misconfigured
from fedblade.core.state import ServerState, unflatten
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree, tree_digest
from fedblade.data.client_parts import is_client_data, parts_of
from fedblade.flower._given_sums import check_given_sums
from fedblade.flower._node_data import own_clients, own_dataset
from fedblade.flower._node_errors import NodeError, failing_with
from fedblade.flower.agreement import Agreement
from fedblade.runs import Setup, diagnostic_request, prepare

Facts = Mapping[str, Any]
"""The facts of a request."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnData:
    """The data of a node's only client: `source` and `agreement` as for `own_dataset`, and the state of the files.

    `sums` is the file of sums that its hospital gave away, if the node has it.

    A file that is written anew has another state, so that nothing made from the former file is used. A function has no
    state: a process calls it once for each run.
    """

    client: int
    source: str
    agreement: Agreement | None
    sums: str | None
    state: tuple[int, ...]

    @staticmethod
    def of(client: int, source: str, agreement: Agreement | None = None, sums: str | None = None) -> "OwnData":
        """The data with the present state of their files."""
        try:
            files = (*(parts_of(source) if is_client_data(source) else ()), None if sums is None else Path(sums))
            found = [file.stat() for file in files if file is not None]
        except (OSError, Misconfigured):  # whoever reads the files says what is wrong
            found = []
        states = [(file.st_mtime_ns, file.st_size, file.st_ino) for file in found]
        return OwnData(client, source, agreement, sums, tuple(number for state in states for number in state))

    def check_sums(self) -> tuple[str, ...]:
        """Lines for the operator about the sums that the hospital gave away; refuses an agreement on other settings."""
        return () if self.sums is None else check_given_sums(self.sums, self.source, self.client, self.agreement)


@functools.lru_cache(maxsize=4)
def node_setup(config: str, num_classes: int, data: OwnData | None, device: str) -> Setup:
    """The set-up of a run on a node, made once per process and state of the data; None means shares."""
    table: dict[str, Any] = json.loads(config)
    local = {"engine": "sequential", "device": device, "trackers": []}
    if data is None:
        with failing_with("setup"):
            return prepare(complete_config(table | local))
    # The node knows only this client, so it cannot draw a cohort of several.
    table["federation"] = table["federation"] | {"clients_per_round": 1}
    with failing_with("data"):
        notes = data.check_sums()
        split_seed = complete_config(table | local).split_seed
        dataset = own_dataset(data.source, num_classes, (split_seed, data.client), data.agreement)
    for note in (*notes, *dataset.notes):
        _log.warning(note)
    clients = own_clients(dataset, data.client, table["federation"]["num_clients"])
    with failing_with("setup"):
        return prepare(complete_config(table | local), dataset, clients=clients)


@functools.lru_cache(maxsize=4)
def samples_digest(config: str, num_classes: int, data: OwnData | None, device: str) -> str:
    """A digest of the samples that the set-up of a run uses, and of the split."""
    setup = node_setup(config, num_classes, data, device)
    return f"{setup.dataset.digest()} {setup.clients.train.digest()}"


def one_client_cohort(setup: Setup, client: int, facts: Facts) -> Cohort:
    """The cohort of this client alone in the round of a request."""
    return Cohort(replace(setup.planner, mean_samples=facts["mean_samples"]), int(facts["round"]), (client,))


def server_state(setup: Setup, facts: Facts, tensors: Tree) -> ServerState:
    """The server's state from the tensors of a request."""
    device = setup.test_order.device
    parts = unflatten({name: leaf.to(device) for name, leaf in tensors.items() if name != "indices"})
    sent = {name: parts.get(f"extra/{name}", {}) for name in setup.method.sent}
    params = parts.get("params", {})
    if {name: leaf.shape for name, leaf in params.items()} != {n: leaf.shape for n, leaf in setup.start.params.items()}:
        raise NodeError("other model", "the coordinator's model has other parameters than this node's.")
    if "fixed" in facts and facts["fixed"] != tree_digest(setup.start.fixed):
        raise NodeError(
            "other frozen layers",
            "this node's frozen layers differ from those it had when it was greeted. Start the node again.",
        )
    fixed = setup.start.fixed | parts.get("fixed", {})
    return ServerState(params, parts.get("buffers", {}), fixed, sent, int(facts["round"]))


def requested_diagnostics(setup: Setup, facts: Facts) -> DiagnosticRequest | None:
    """The diagnostics that the request names."""
    known = diagnostic_request(setup, setup.metrics)
    if known is None or not (facts["every"] or facts["first"]):
        return None
    every, first = (
        tuple(sum_ for sum_ in sums if sum_.name in facts[kind])
        for sums, kind in ((known.every, "every"), (known.first, "first"))
    )
    return replace(known, every=every, first=first if facts["is_first"] else ())


def requested_passes(setup: Setup, names: Sequence[str]) -> list[DataPass]:
    """The passes that a request names."""
    known = {data_pass.name: data_pass for metric in setup.metrics for data_pass in metric.passes}
    missing = [name for name in names if name not in known]
    if missing:
        raise NodeError("unknown metric", f"this node knows no metric with the pass '{missing[0]}'.")
    return [known[name] for name in names]
