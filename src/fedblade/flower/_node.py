"""A node's answers: the client half of a run, with the local loop that every engine has."""

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedblade._version import __version__
from fedblade.config.run_config import complete_config
from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.state import DiskStore, ServerState, unflatten
from fedblade.core.sums import DataPass, Sums
from fedblade.core.tree import State, Tree, tree_digest
from fedblade.engines.base import RoundOutcome
from fedblade.engines.packing import pack
from fedblade.flower._data import own_clients, own_dataset
from fedblade.flower._used import UsedStore, make_run_folder
from fedblade.runs import (
    Setup,
    compute_settings,
    diagnostic_request,
    measured_client,
    plan_phases,
    prepare,
    tuning_stages,
)

Answer = tuple[dict[str, Any], Tree]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Node:
    """A node's place in the federation: the clients it speaks for, its data (None: its share) and its folder."""

    clients: tuple[int, ...]
    data: str | None
    folder: Path
    device: str = "auto"

    def answer(self, kind: str, facts: Mapping[str, Any], tensors: Tree) -> Answer:
        """The facts and tensors that answer a request; what cannot be done raises."""
        self._check(facts["config"]["federation"]["num_clients"], facts["data"])
        if kind == "hello":
            return {"clients": {str(client): self._held(client, facts) for client in self.clients}}, {}
        client = int(facts["client"])
        if client not in self.clients:
            raise Misconfigured(f"this node speaks for client(s) {list(self.clients)}, not for {client}.")
        asked: Mapping[str, Callable[[Setup, int, Mapping[str, Any], Tree], Answer]] = {
            "train": self._train,
            "collect": self._collect,
            "tune": self._tune,
            "measure": self._measure,
        }
        setup = self._setup(facts, client)
        with compute_settings(setup):
            found, answer = asked[kind](setup, client, facts, tensors)
        repeated = {"client": client, "round": facts["round"], "kind": kind, "is_first": facts.get("is_first")}
        return found | repeated, {name: leaf.cpu() for name, leaf in answer.items()}

    def _check(self, num_clients: int, data: str) -> None:
        """Refuse clients that the run does not have, data other than it expects, and data that clients would share."""
        outside = [client for client in self.clients if not 0 <= client < num_clients]
        if outside:
            raise Misconfigured(
                f"this node speaks for client {outside[0]}, but the run has clients 0 to {num_clients - 1}. "
                f"Mend `clients` in the node's configuration."
            )
        if data == "nodes" and self.data is None:
            raise Misconfigured(
                'this node has no data of its own, and the run expects them (flower.data = "nodes"). Give the node '
                '`data` in its configuration, such as data="/path/to/samples.npz".'
            )
        if data != "nodes" and self.data is not None:
            raise Misconfigured(
                f"this node has data of its own, and the run gives every client a share of its data set (flower.data = "
                f'"{data}"). Set flower.data = "nodes" in the app, or leave `data` out of the node\'s configuration.'
            )
        if self.data is not None and len(self.clients) > 1:
            raise Misconfigured(
                f"this node has data of its own and speaks for clients {list(self.clients)}, who would all train on "
                f"them. Start a node for each client."
            )

    def _held(self, client: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What the server must know of a client: samples per class, what a sample looks like and how it is scaled."""
        setup = self._setup(facts, client)
        table = setup.clients.train.table()
        return {
            "counts": [int(count) for count in table[client]],
            "input_shape": list(setup.dataset.input_shape),
            "scaling": [setup.dataset.unit, list(setup.dataset.mean), list(setup.dataset.std)],
            "dtype": setup.dataset.train.inputs.dtype.name,
            "given_shape": list(setup.dataset.given_shape or ()),
            "version": __version__,
            "fixed": tree_digest(setup.start.fixed),
        }

    def _setup(self, facts: Mapping[str, Any], client: int) -> Setup:
        config = json.dumps(facts["config"], sort_keys=True)
        return node_setup(config, facts["num_classes"], self.data, self.device, None if self.data is None else client)

    def _train(self, setup: Setup, client: int, facts: Mapping[str, Any], tensors: Tree) -> Answer:
        store = self._store(facts, client)
        diagnostics = _diagnostics(setup, facts)
        outcome = setup.engine.train(
            _server(setup, facts, tensors),
            _cohort(setup, client, facts),
            store,
            facts["lr"],
            lambda _: None,
            diagnostics,
        )
        answer, found = pack(outcome)
        return store.told(found), answer

    def _collect(self, setup: Setup, client: int, facts: Mapping[str, Any], tensors: Tree) -> Answer:
        store, names = self._store(facts, client), list(facts["sums"])
        chosen = [each.sums for each in setup.method.exchanges if [one.name for one in each.sums] == names]
        if not chosen:
            raise Misconfigured(f"method '{setup.config.method.name}' has no exchange of {names}.")
        outcome = setup.engine.collect(_server(setup, facts, tensors), _cohort(setup, client, facts), store, chosen[0])
        answer, found = pack(outcome)
        return store.told(found), answer

    def _tune(self, setup: Setup, client: int, facts: Mapping[str, Any], tensors: Tree) -> Answer:
        """Train the client's own model on the next stage of the protocol, and keep it."""
        stages, stage = tuning_stages(setup.method, setup.config.evaluation.protocol) or (), int(facts["stage"])
        if stage >= len(stages):
            raise Misconfigured(f"own models are tuned in {len(stages)} stage(s), and stage {stage + 1} was asked for.")
        phases, tuned = stages[stage], self._tuned(facts)
        own = _own_state(tuned, self._store(facts, client), client, stage)
        cohort = replace(
            _cohort(setup, client, facts),
            phases=plan_phases(setup.config, phases),
            first_epoch=int(facts["first_epoch"]),
        )
        server = _server(setup, facts, tensors)
        ((_, state),) = setup.engine.adapt(server, cohort, lambda _: own, facts["lr"], phases)
        make_run_folder(self._folder(facts))
        tuned.put(client, stage, state)
        answer, found = pack(RoundOutcome())
        return found, answer

    def _measure(self, setup: Setup, client: int, facts: Mapping[str, Any], tensors: Tree) -> Answer:
        passes = _passes(setup, facts["passes"])
        server = _server(setup, facts, tensors)
        samples, indices = setup.test, setup.test_order
        if self.data is None and "indices" in tensors:
            indices = tensors["indices"].to(indices.device)
            samples = samples if facts["part"] == "test" else setup.personal_test_samples
        if facts["own"]:
            own = _own_state(self._tuned(facts), self._store(facts, client), client, int(facts["stage"]))
            mine = measured_client(setup, server, client, own)
            ((_, totals),) = setup.engine.measure_personal(server, [(mine, indices)], samples, passes)
        else:
            totals = setup.engine.measure(server, samples, indices, passes)
        answer, found = pack(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))))
        return found, answer

    def _tuned(self, facts: Mapping[str, Any]) -> DiskStore:
        """The clients' own models after each stage of tuning at the end of a run."""
        return DiskStore(self._folder(facts) / "tuned")

    def _store(self, facts: Mapping[str, Any], client: int) -> UsedStore:
        return UsedStore(self._folder(facts), client, facts)

    def _folder(self, facts: Mapping[str, Any]) -> Path:
        """Where the states of a run are kept."""
        token = str(facts["token"])
        if not token.isalnum():
            raise Misconfigured("the server calls the run by a name that is no name. Use one version everywhere.")
        return self.folder / token


def _own_state(tuned: DiskStore, store: UsedStore, client: int, stage: int) -> State | None:
    """What a client's own model is made of, after so many stages of tuning."""
    if not stage:
        return store.get(client, 0)
    if not tuned.has(client, stage - 1):
        raise RunFailed(f"the model that client {client} tuned is gone from this node's folder.")
    return tuned.get(client, stage)


@functools.lru_cache(maxsize=4)
def node_setup(config: str, num_classes: int, data: str | None, device: str, client: int | None) -> Setup:
    """Everything a client needs, made once per process, on the node's own device; `client` is whose the data are."""
    table: dict[str, Any] = json.loads(config)
    own = {"engine": "sequential", "device": device, "trackers": []}
    if data is None or client is None:
        return prepare(complete_config(table | own))
    # A node knows of no other client, so it cannot draw cohorts.
    table["federation"] = table["federation"] | {"clients_per_round": 1}
    dataset = own_dataset(data, num_classes)
    for note in dataset.notes:
        _log.warning(note)
    return prepare(
        complete_config(table | own), dataset, clients=own_clients(dataset, client, table["federation"]["num_clients"])
    )


def _cohort(setup: Setup, client: int, facts: Mapping[str, Any]) -> Cohort:
    return Cohort(replace(setup.planner, mean_samples=facts["mean_samples"]), int(facts["round"]), (client,))


def _server(setup: Setup, facts: Mapping[str, Any], tensors: Tree) -> ServerState:
    """The server's state as it was sent."""
    device = setup.test_order.device
    parts = unflatten({name: leaf.to(device) for name, leaf in tensors.items() if name != "indices"})
    sent = {name: parts.get(f"extra/{name}", {}) for name in setup.method.sent}
    params = parts.get("params", {})
    if {name: leaf.shape for name, leaf in params.items()} != {n: leaf.shape for n, leaf in setup.start.params.items()}:
        raise Misconfigured("the server's model is not this node's. Use one version of fedblade everywhere.")
    if "fixed" in facts and facts["fixed"] != tree_digest(setup.start.fixed):
        raise Misconfigured("this node's frozen layers are not those it was greeted with. Start the node again.")
    fixed = setup.start.fixed | parts.get("fixed", {})
    return ServerState(params, parts.get("buffers", {}), fixed, sent, int(facts["round"]))


def _diagnostics(setup: Setup, facts: Mapping[str, Any]) -> DiagnosticRequest | None:
    """What diagnostics ask of the client, by the names of the sums."""
    whole = diagnostic_request(setup, setup.metrics)
    if whole is None or not (facts["every"] or facts["first"]):
        return None
    every, first = (
        tuple(each for each in asked if each.name in facts[kind])
        for asked, kind in ((whole.every, "every"), (whole.first, "first"))
    )
    return replace(whole, every=every, first=first if facts["is_first"] else ())


def _passes(setup: Setup, names: Sequence[str]) -> list[DataPass]:
    known = {each.name: each for metric in setup.metrics for each in metric.passes}
    missing = [name for name in names if name not in known]
    if missing:
        raise Misconfigured(f"this node knows no metric with the pass '{missing[0]}'. Use one version everywhere.")
    return [known[name] for name in names]
