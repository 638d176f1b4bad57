"""A node: answers the server's requests by training and measuring with the sequential engine."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedblade.core.client_losses import collectable_sums
from fedblade.core.single_states import SingleStates
from fedblade.core.sums import Sums
from fedblade.core.tree import State, Tree, tree_digest
from fedblade.core.untrusted_text import short_repr
from fedblade.engines.base import RoundOutcome
from fedblade.engines.nodes import digests_differ, own_protocol
from fedblade.engines.packing import pack
from fedblade.flower._client_states import UsedStates, make_run_folder
from fedblade.flower._last_answer import Answer, LastAnswer
from fedblade.flower._node_errors import NodeError, failing_with
from fedblade.flower._node_setup import (
    Facts,
    OwnData,
    node_setup,
    one_client_cohort,
    requested_diagnostics,
    requested_passes,
    samples_digest,
    server_state,
)
from fedblade.flower._salted_digest import salted_digest
from fedblade.flower.agreement import Agreement
from fedblade.runs import Setup, compute_settings, measured_client, plan_phases, revisions_of, tuning_stages


@dataclass(frozen=True)
class Node:
    """A node of a federation: its clients, its data and the folder of its clients' states.

    `data` is None if every client uses its share of the run's data set. `agreement` is that of the pinned app; requests
    have none. `sums` is the file of sums that the hospital gave away: with it, the node refuses any other agreement.
    """

    clients: tuple[int, ...]
    data: str | None
    folder: Path
    device: str = "auto"
    agreement: Agreement | None = None
    sums: str | None = None

    def answer(self, kind: str, facts: Facts, tensors: Tree) -> Answer:
        """The answer to a request; raises an error if the request cannot be carried out."""
        self._check(facts["config"]["federation"]["num_clients"], facts["data"])
        if kind == "hello":
            return {"clients": {str(client): self._description(client, facts) for client in self.clients}}, {}
        client = int(facts["client"])
        if client not in self.clients:
            raise NodeError("foreign", f"this node speaks for client(s) {list(self.clients)}, not for {client}.")
        handlers: Mapping[str, Callable[[Setup, int, Facts, Tree], Answer]] = {
            "train": self._train,
            "collect": self._collect,
            "tune": self._tune,
            "measure": self._measure,
        }
        last = LastAnswer(self._folder(facts), client, kind, facts, tensors)
        if (answer := last.recall()) is not None:
            return answer
        setup = self._setup(facts, client)
        self._check_samples(facts, client)
        with compute_settings(setup), failing_with("refused"):
            answer_facts, answer_tensors = handlers[kind](setup, client, facts, tensors)
        repeated = {"client": client, "round": facts["round"], "kind": kind, "is_first": facts.get("is_first")}
        answer = answer_facts | repeated, {name: leaf.cpu() for name, leaf in answer_tensors.items()}
        last.keep(answer)
        return answer

    def _check(self, num_clients: int, data: str) -> None:
        """Refuse clients that the run does not have, data that it does not expect, and data that two clients share."""
        outside = [client for client in self.clients if not 0 <= client < num_clients]
        if outside:
            raise NodeError(
                "outside",
                f"this node speaks for client {outside[0]}, but the run has clients 0 to {num_clients - 1}. "
                f"Correct `clients` in the node's configuration.",
            )
        if data == "nodes" and self.data is None:
            raise NodeError(
                "no data",
                'this node has no data of its own, and the run expects them (flower.data = "nodes"). Give the node '
                '`data` in its configuration, such as data="/path/to/samples.npz".',
            )
        if data != "nodes" and self.data is not None:
            raise NodeError(
                "own data",
                f"this node has data of its own, and the run gives every client a share of its data set (flower.data = "
                f'"{data}"). Set flower.data = "nodes" in the app, or leave `data` out of the node\'s configuration.',
            )
        if self.data is not None and len(self.clients) > 1:
            raise NodeError(
                "shared data",
                f"this node has data of its own and speaks for clients {list(self.clients)}, who would all train on "
                f"them. Start a node for each client.",
            )

    def _description(self, client: int, facts: Facts) -> dict[str, Any]:
        """The client's data for the server: samples per class, and the shape, type and scaling of a sample."""
        setup = self._setup(facts, client)
        table = setup.clients.train.table()
        return {
            "counts": [int(count) for count in table[client]],
            "input_shape": list(setup.dataset.input_shape),
            "scaling": [setup.dataset.unit, list(setup.dataset.mean), list(setup.dataset.std)],
            "dtype": setup.dataset.train.inputs.dtype.name,
            "given_shape": list(setup.dataset.given_shape or ()),
            "test_samples": 0 if self.data is None else len(setup.test_order),
            "salted_digest": self._salted_digest(facts, client),
            "revisions": revisions_of(setup.config),
            **own_protocol(),
            "fixed": tree_digest(setup.start.fixed),
        }

    def _setup(self, facts: Facts, client: int) -> Setup:
        return node_setup(*self._setup_key(facts, client))

    def _salted_digest(self, facts: Facts, client: int) -> str:
        digest = samples_digest(*self._setup_key(facts, client))
        with failing_with("disk"):
            return salted_digest(self.folder, digest)

    def _setup_key(self, facts: Facts, client: int) -> tuple[str, int, OwnData | None, str]:
        """What the set-up of a run on this node depends on."""
        config = json.dumps(facts["config"], sort_keys=True)
        data = None if self.data is None else OwnData.of(client, self.data, self.agreement, self.sums)
        return config, int(facts["num_classes"]), data, self.device

    def _check_samples(self, facts: Facts, client: int) -> None:
        """Refuse to work on other samples than those that the node described when it was greeted."""
        if digests_differ(str(facts.get("salted_digest", "")), self._salted_digest(facts, client)):
            raise NodeError(
                "other samples",
                f"the samples of client {client} have changed since the run began. Put the former samples back, or "
                f"start a new run with the new ones.",
            )

    def _train(self, setup: Setup, client: int, facts: Facts, tensors: Tree) -> Answer:
        store = self._store(facts, client)
        diagnostics = requested_diagnostics(setup, facts)
        outcome = setup.engine.train(
            server_state(setup, facts, tensors),
            one_client_cohort(setup, client, facts),
            store,
            facts["lr"],
            lambda _: None,
            diagnostics,
        )
        return _pack_outcome(outcome, store)

    def _collect(self, setup: Setup, client: int, facts: Facts, tensors: Tree) -> Answer:
        store, names = self._store(facts, client), list(facts["sums"])
        chosen = [sums for sums in collectable_sums(setup.method) if [declared.name for declared in sums] == names]
        if not chosen:
            raise NodeError("unknown exchange", f"method '{setup.config.method.name}' has no exchange of {names}.")
        server, cohort = server_state(setup, facts, tensors), one_client_cohort(setup, client, facts)
        outcome = setup.engine.collect(server, cohort, store, chosen[0])
        return _pack_outcome(outcome, store)

    def _tune(self, setup: Setup, client: int, facts: Facts, tensors: Tree) -> Answer:
        """Train the client's personal model on the next stage of the protocol, and save it."""
        stages, stage = tuning_stages(setup.method, setup.config.evaluation.protocol) or (), int(facts["stage"])
        if stage >= len(stages):
            raise NodeError(
                "refused", f"personal models are tuned in {len(stages)} stage(s), and stage {stage + 1} was asked for."
            )
        phases, tuned_states = stages[stage], self._tuned_states(facts)
        state = _personal_state(tuned_states, self._store(facts, client), client, stage)
        cohort = replace(
            one_client_cohort(setup, client, facts),
            phases=plan_phases(setup.config, phases),
            first_epoch=int(facts["first_epoch"]),
        )
        server = server_state(setup, facts, tensors)
        ((_, tuned),) = setup.engine.adapt(server, cohort, lambda _: state, facts["lr"], phases)
        with failing_with("disk"):
            make_run_folder(self._folder(facts))
            tuned_states.put(client, stage, tuned)
        return _pack_outcome(RoundOutcome())

    def _measure(self, setup: Setup, client: int, facts: Facts, tensors: Tree) -> Answer:
        passes = requested_passes(setup, facts["passes"])
        server = server_state(setup, facts, tensors)
        samples, indices = setup.test, setup.test_order
        if self.data is None and "indices" in tensors:
            indices = tensors["indices"].to(indices.device)
            samples = samples if facts["part"] == "test" else setup.personal_test_samples
        if facts["own"]:
            store, stage = self._store(facts, client), int(facts["stage"])
            state = _personal_state(self._tuned_states(facts), store, client, stage)
            measured = measured_client(setup, server, client, state)
            ((_, totals),) = setup.engine.measure_personal(server, [(measured, indices)], samples, passes)
        else:
            totals = setup.engine.measure(server, samples, indices, passes)
        return _pack_outcome(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))))

    def _tuned_states(self, facts: Facts) -> SingleStates:
        """The clients' states after each stage of tuning at the end of a run."""
        return SingleStates(self._folder(facts) / "tuned")

    def _store(self, facts: Facts, client: int) -> UsedStates:
        earlier = [(self._run_folder(token), int(end)) for token, end in facts.get("earlier", ())]
        return UsedStates(self._folder(facts), client, facts, earlier)

    def _folder(self, facts: Facts) -> Path:
        """Folder of the clients' states in the run."""
        return self._run_folder(facts["token"])

    def _run_folder(self, name: object) -> Path:
        """Folder of the clients' states in the run of this name."""
        token = str(name)
        if not token.isalnum():
            raise NodeError("refused", f"the server names the run {short_repr(token)}; expected letters and digits.")
        return self.folder / token


def _pack_outcome(outcome: RoundOutcome, store: UsedStates | None = None) -> Answer:
    """An outcome as an answer; with a store, the answer also says what happened to the client's state."""
    tensors, facts = pack(outcome)
    return facts if store is None else store.add_facts(facts), tensors


def _personal_state(tuned_states: SingleStates, store: UsedStates, client: int, stage: int) -> State | None:
    """The state behind a client's personal model after `stage` stages of tuning."""
    if not stage:
        return store.get(client, 0)
    state = tuned_states.get(client, stage - 1)
    if state is None:
        raise NodeError("lost model", f"the model that client {client} tuned is gone from this node's folder.")
    return state
