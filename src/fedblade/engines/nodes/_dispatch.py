"""The rules of a deployed run, and requests to the nodes of clients."""

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.core.state import ServerState, flatten
from fedblade.core.tree import Tree, tree_digest
from fedblade.engines.nodes._arrivals import Order
from fedblade.engines.nodes._roster import Journal, Roster
from fedblade.engines.nodes._transport import Kind, Request, Transport

_PAUSE = 0.5
"""Seconds between two looks for nodes that may come back."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RoundRules:
    """How long a round may last and how many of its clients must answer.

    A round ends when all clients have answered, or after `round_seconds`. If fewer than `quorum` of the cohort have
    answered by then, the missing clients are asked again when their nodes are back, `attempts` times in all; then the
    run stops and can be resumed. With `order` "fixed" the sums are those of the sequential engine to the last bit; with
    "arrival" the last bits may differ from run to run. A resumed run may restart up to `oldest` rounds back, so nodes
    keep the states of clients that long. An update may be `max_norm` times as long as the model. `table` is the table
    of the configuration that these rules come from; messages name it.
    """

    round_seconds: float = 600.0
    quorum: float = 0.5
    attempts: int = 3
    order: Order = "fixed"
    oldest: int = 2
    max_norm: float = 100.0
    table: str = ""

    def min_replies(self, num_asked: int) -> int:
        """How many of the clients that are asked must answer."""
        return math.ceil(self.quorum * num_asked - _ROUNDING)

    def setting(self, name: str) -> str:
        """The full name of a setting in the configuration, for messages."""
        return f"{self.table}.{name}" if self.table else name


class Dispatch:
    """Finds the nodes of clients and makes requests to them; what happens to nodes is noted in the journal.

    `common_facts` gives the facts that every request carries. `sent` names the parts of the server's extra state that
    clients need. `start` is the server state at the beginning of the run. Nodes make the fixed tensors of the start
    themselves, such as frozen layers. They are sent only the fixed tensors that have changed, or all of them if a
    node's fixed tensors differ from the server's.
    """

    def __init__(
        self,
        transport: Transport,
        roster: Roster,
        rules: RoundRules,
        common_facts: Callable[[], Mapping[str, Any]],
        journal: Journal,
        sent: Sequence[str],
        start: ServerState,
    ) -> None:
        self.transport, self._roster, self.rules, self._make_facts = transport, roster, rules, common_facts
        self._journal, self._extra, self._start = journal, tuple(sent), start
        self._made_by_nodes: frozenset[str] = frozenset()
        self._begun_rounds = 0
        self._asked: dict[int, str | None] = {}
        self._lost: dict[int, str | None] = {}

    @functools.cached_property
    def _common_facts(self) -> Mapping[str, Any]:
        return {**self._make_facts(), "oldest": self.rules.oldest}

    @functools.cached_property
    def _digest(self) -> str:
        return tree_digest(self._start.fixed)

    @property
    def clients_with_samples(self) -> list[int]:
        """All clients that hold samples, in ascending id."""
        return [client for client, description in sorted(self._roster.clients.items()) if any(description.counts)]

    def test_samples(self, client: int) -> int:
        """The number of test samples that a client's node declared; 0 if it has no node yet."""
        described = self._roster.clients.get(client)
        return 0 if described is None else described.test_samples

    def is_admitted(self, client: int, node: int) -> bool:
        """Whether a node may speak for a client at this moment; its key may be revoked at any time."""
        admitted = self._roster.admitted(node)
        return admitted is None or client in admitted

    def refresh(self, round_: int | None = None) -> None:
        """Greet nodes that are new or have come back.

        New clients join in the round `round_` (from 0) if it begins now, otherwise in the next one.
        """
        first = self._begun_rounds + 1
        if round_ is not None:
            self._begun_rounds = max(self._begun_rounds, round_ + 1)
            first = max(first, round_ + 1)
        self._roster.refresh(self.rules.round_seconds, first)

    def wait_for(self, clients: Collection[int], deadline: float) -> None:
        """Wait until every one of the clients has a node that can be reached, or the time is over."""
        while time.monotonic() < deadline and not all(self._is_back(client) for client in clients):
            time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
            self.refresh()

    def _is_back(self, client: int) -> bool:
        """Whether a client's node can be reached; a lost node may still be listed under its old incarnation."""
        node = self._roster.node_of(client)
        if node is None:
            return False
        return client not in self._lost or self.transport.nodes().get(node) != self._lost[client]

    def note(self, event: str, kind: Kind, round_: int, **facts: Any) -> None:
        """Write an event to the journal."""
        self._journal({"event": event, "round": _counted_round(kind, round_), "kind": kind, **facts})

    def server_tensors(self, server: ServerState) -> Tree:
        """The tensors of the server's state that clients need, including those that nodes may have made themselves."""
        self._made_by_nodes = frozenset(f"fixed/{name}" for name in server.unmoved(self._start))
        extra = {f"extra/{name}": server.extra[name] for name in self._extra}
        parts = flatten({"params": server.params, "buffers": server.buffers, "fixed": server.fixed} | extra)
        return {name: leaf.cpu() for name, leaf in parts.items()}

    def request(self, kind: Kind, client: int, round_: int, facts: Mapping[str, Any], tensors: Tree) -> Request | None:
        """A request to the node of a client; None if no node can be reached."""
        node = self._roster.node_of(client)
        if node is None or not self._roster.takes_part(client, _counted_round(kind, round_)):
            later = {} if node is None else {"reason": "it joins the run in a later round"}
            self.note("no node", kind, round_, client=client, **later)
            return None
        self._asked[client] = self.transport.nodes().get(node)
        self._lost.pop(client, None)
        described = self._roster.description_of(client)
        asked = {"client": client, "round": round_, "salted_digest": described.salted_digest}
        all_facts = {**self._common_facts, **facts, **asked}
        if self._made_by_nodes and described.fixed == self._digest:
            all_facts["fixed"] = self._digest
            tensors = {name: leaf for name, leaf in tensors.items() if name not in self._made_by_nodes}
        return Request(kind, node, all_facts, tensors)

    def mark_lost(self, client: int) -> None:
        """Remember that a client's node was lost, under the incarnation that was asked."""
        self._lost[client] = self._asked.get(client)


def _counted_round(kind: Kind, round_: int) -> int:
    """The round as messages count it, from 1; work after a round belongs to that round."""
    return round_ + 1 if kind in ("train", "collect") else round_
