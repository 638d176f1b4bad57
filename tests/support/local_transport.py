"""Nodes in this process, behind the interface that carries requests: real clients and servers, no network."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from fedblade.core.errors import FedbladeError
from fedblade.core.tree import tree_clone
from fedblade.engines.nodes import Reply, Request, SizeLimit
from fedblade.flower._answering import answer_request
from fedblade.flower._node import Node
from fedblade.flower._node_errors import error_facts, error_text

Tamper = Callable[[Request, Reply], Sequence[Reply]]


class LocalTransport:
    """Answers at once, in the order that `order` gives to a batch of requests; `tamper` may change what comes back.

    A node in `offline` gets nothing, and its requests are lost. One in `forgetful` loses what it is asked and comes
    back as another incarnation, once. One in `slow` answers some seconds after it was asked.
    """

    def __init__(
        self, nodes: Mapping[int, Node], order: Callable[[list[str]], list[str]] = list, tamper: Tamper | None = None
    ) -> None:
        self.there, self._order, self.tamper = dict(nodes), order, tamper
        self._sent: dict[str, Request] = {}
        self._number = 0
        self._times: dict[str, float] = {}
        self.slow: dict[int, float] = {}
        self.offline: set[int] = set()
        self.forgetful: set[int] = set()
        self.incarnations = dict.fromkeys(nodes, 0)
        self.asked: list[Request] = []

    def nodes(self) -> Mapping[int, str]:
        return {node: str(self.incarnations.get(node, 0)) for node in self.there if node not in self.offline}

    def send(self, requests: Sequence[Request], seconds: float) -> list[str | None]:
        ids: list[str | None] = []
        for request in requests:
            self._number += 1
            ids.append(str(self._number))
            self._times[ids[-1]] = time.monotonic()
            # Facts travel as JSON.
            plain = json.loads(json.dumps(dict(request.facts)))
            self._sent[str(self._number)] = Request(request.kind, request.node, plain, tree_clone(request.tensors))
            self.asked.append(request)
            if request.kind == "refused":
                # Nobody waits for the reply.
                self._answer(ids[-1], self._sent.pop(ids[-1]))
        return ids

    def receive(self, waiting: Collection[str], largest: SizeLimit) -> Iterator[Reply]:
        for id_ in self._order([each for each in waiting if each in self._sent and self._is_ready(each)]):
            request = self._sent.pop(id_)
            if request.node in self.offline:
                continue
            if request.node in self.forgetful:
                self.forgetful.remove(request.node)
                self.incarnations[request.node] += 1
                continue
            if self.tamper is None:
                yield self._answer(id_, request)
            else:
                yield from self.tamper(request, self._answer(id_, request))

    def _is_ready(self, id_: str) -> bool:
        request = self._sent[id_]
        slow = 0.0 if request.kind == "hello" else self.slow.get(request.node, 0.0)
        return time.monotonic() - self._times[id_] >= slow

    def _answer(self, id_: str, request: Request) -> Reply:
        try:
            facts, tensors = answer_request(
                request.kind, request.facts, request.tensors, lambda: self.there[request.node], lambda _: None
            )
        except FedbladeError as error:
            facts, tensors = error_facts(error), {}
        facts = json.loads(json.dumps(facts))
        return Reply(id_, request.node, facts, tensors, error_text(facts) if "error" in facts else None)
