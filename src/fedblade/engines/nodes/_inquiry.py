"""One question to clients: asks them, checks their replies, and knows why a reply is missing."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fedblade.core.tree import Tree
from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.core.words import listing, plural
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._open_requests import OpenRequests
from fedblade.engines.nodes._transport import Kind, Reply, Request, SizeLimit

_REPEATED = ("client", "round", "is_first")
"""Facts of a request that its reply has to repeat."""
_NO_NODE, _LOST, _LATE, _REFUSED = "without a node", "node lost", "did not answer", "refused"
"""Why the reply of a client is missing, in the order in which a message says it."""
NOT_ADMITTED = "its node is no longer admitted"
_MOST_SHOWN = 3
"""Clients and reasons that a message shows for one cause."""


class Inquiry:
    """Asks clients one question in several attempts. A reply to an earlier attempt counts like one to the last.

    A client that is late is asked again, because its request or its reply may be lost. A node that has done the work
    meanwhile does not do it twice: it repeats its reply.
    """

    def __init__(self, dispatch: Dispatch, kind: Kind, template: Template, round_: int, attempts: int = 1) -> None:
        self._dispatch, self._kind, self._template, self._round = dispatch, kind, template, round_
        self._attempts = attempts
        self._requests = OpenRequests(dispatch.transport, SizeLimit.of(template.tensors))
        self._causes: dict[int, tuple[str, str]] = {}

    def request(self, client: int, facts: Mapping[str, Any], tensors: Tree) -> Request | None:
        """A request to the node of a client; None if no node can be reached."""
        request = self._dispatch.request(self._kind, client, self._round, facts, tensors)
        if request is None:
            self._causes[client] = (_NO_NODE, "")
        return request

    def replies(
        self, requests: Sequence[Request], clients: Collection[int], seconds: float
    ) -> Iterator[tuple[Request | None, Reply | None]]:
        """Send requests and yield each with its reply as the reply arrives; the reply is None if it is refused.

        Ends when all `clients` that were asked have answered, or after `seconds`. Lost and late clients are noted in
        the journal and give no pair.
        """
        awaited = [request for request in self._requests if request.facts["client"] in clients]
        for request, reply in self._requests.replies(requests, seconds, seconds * self._attempts, awaited):
            if request is None:
                yield from self._unasked(reply)
            elif reply.node is None or not reply.request:
                self._note_lost(request, reply)
            else:
                yield request, self._checked(request, reply)
        for client, node in {int(late.facts["client"]): late.node for late in self._requests}.items():
            if client in clients:
                self._causes[client] = (_LATE, "")
                self._dispatch.note("late", self._kind, self._round, client=client, node=str(node), seconds=seconds)

    def shortfall(self, clients: Collection[int]) -> str:
        """A sentence that says why the replies of these clients are missing."""
        clauses = []
        for cause in (_NO_NODE, _LOST, _LATE, _REFUSED):
            found = [client for client in sorted(clients) if self._causes.get(client, ("", ""))[0] == cause]
            if found:
                clauses.append(f"{cause}: {_numbered(found)}{self._reasons(found)}")
        return f"Missing clients: {'; '.join(clauses)}." if clauses else ""

    def _reasons(self, clients: Sequence[int]) -> str:
        """The reasons of these clients in brackets, each with its first client."""
        by_reason: dict[str, int] = {}
        for client in clients:
            by_reason.setdefault(self._causes[client][1].removesuffix("."), client)
        shown = [f"client {client}: {reason}" for reason, client in by_reason.items() if reason]
        more = ["…"] if len(shown) > _MOST_SHOWN else []
        return f" ({'; '.join([*shown[:_MOST_SHOWN], *more])})" if shown else ""

    def _unasked(self, reply: Reply) -> Iterator[tuple[None, None]]:
        """Note a reply that answers no open request: a repeated one is ignored, another one counts as refused."""
        event = "ignored reply" if reply.is_repeated else "refused reply"
        self._note_reply(event, None, reply.node, reply.error or "")
        if not reply.is_repeated:
            yield None, None

    def _note_lost(self, request: Request, reply: Reply) -> None:
        client, reason = int(request.facts["client"]), reply.error or ""
        self._causes[client] = (_LOST, reason)
        self._dispatch.mark_lost(client)
        self._note_reply("lost", client, request.node, reason)

    def _checked(self, request: Request, reply: Reply) -> Reply | None:
        """The reply if it can be used; then the client is not waited for at any other node."""
        client = int(request.facts["client"])
        to_repeat = {key: request.facts[key] for key in _REPEATED if key in request.facts} | {"kind": self._kind}
        reason = self._template.refusal(reply, to_repeat, request.facts.get("test_samples"))
        if not self._dispatch.is_admitted(client, request.node):
            reason = NOT_ADMITTED
        if reason is None:
            self._requests.close([other for other in self._requests if other.facts["client"] == client])
            self._causes.pop(client, None)
            return reply
        self._causes[client] = (_REFUSED, printable(reason, REASON_CHARACTERS))
        self._note_reply("refused reply", client, request.node, reason)
        return None

    def take_back(self, client: int, node: int) -> None:
        """Refuse a reply that was taken before its node was revoked."""
        self._causes[client] = (_REFUSED, NOT_ADMITTED)
        self._note_reply("refused reply", client, node, NOT_ADMITTED)

    def _note_reply(self, event: str, client: int | None, node: int | None, reason: str) -> None:
        shown = printable(reason, REASON_CHARACTERS)
        self._dispatch.note(event, self._kind, self._round, client=client, node=str(node), reason=shown)


def _numbered(clients: Sequence[int]) -> str:
    """`client 3`, `clients 1 and 2`, or `9 clients` if there are many."""
    if len(clients) > _MOST_SHOWN:
        return plural(len(clients), "client")
    return f"{'client' if len(clients) == 1 else 'clients'} {listing([str(client) for client in clients])}"
