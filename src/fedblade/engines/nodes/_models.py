"""Models that nodes measure and tune: the global one on their samples, and their clients' own."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedblade.core.cohort import Cohort
from fedblade.core.errors import RunFailed
from fedblade.core.state import ServerState, unflatten
from fedblade.core.sums import DataPass
from fedblade.core.tree import State, Tree, tree_map
from fedblade.engines.base import ClientStates, MeasuredClient
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._ledger import after_tuning, held
from fedblade.engines.nodes._post import Request
from fedblade.engines.nodes._templates import Templates
from fedblade.engines.packing import KINDS

_AT_A_TIME = 32
"""Own models that are measured at a time."""
_Errand = tuple[int, Mapping[str, Any], Tree]
"""A client, and what its request says besides."""


class NodeModels:
    """What nodes find out about models where their samples are. Clients that do not answer are noted and left out."""

    def __init__(self, dispatch: Dispatch, templates: Templates) -> None:
        self._dispatch, self._templates = dispatch, templates

    def measure(self, server: ServerState, passes: Sequence[DataPass]) -> Mapping[str, Tree]:
        """Run passes with the global model over the test samples of every node.

        A quorum of the clients must answer; while there are fewer, those that are silent are asked again.
        """
        everyone, terms = self._dispatch.everyone, self._dispatch.terms
        wanted, left = terms.wanted(len(everyone)), everyone
        total: Mapping[str, Tree] | None = None
        for attempt in range(terms.attempts):
            deadline = time.monotonic() + terms.round_seconds
            heard: set[int] = set()
            for begin in range(0, len(left), _AT_A_TIME):
                group: list[_Errand] = [(client, {}, {}) for client in left[begin : begin + _AT_A_TIME]]
                for client, each in self._measured(server, group, passes, own=False):
                    total = each if total is None else _added(total, each)
                    heard.add(client)
            left = [client for client in left if client not in heard]
            if len(everyone) - len(left) >= wanted:
                break
            if attempt + 1 < terms.attempts:
                self._dispatch.wait_for(left, deadline)
        self._note_silent(server, left)
        if total is None or len(everyone) - len(left) < wanted:
            raise _too_few(server.round, len(everyone) - len(left), len(everyone))
        return total

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        part: str,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, Mapping[str, Tree]]]:
        """Run passes with the clients' own models; `part` names the samples where nodes hold shares of one data set."""
        group: list[_Errand] = []
        asked = found = 0
        for holder, indices in clients:
            own = held(holder.state)
            asked += 1
            if own.stage is not None:
                facts = {"part": part, "used": own.used, "stage": own.stage}
                group.append((holder.client, facts, {"indices": indices.cpu()}))
            if len(group) == _AT_A_TIME:
                for each in self._own_measured(server, group, passes):
                    found += 1
                    yield each
                group = []
        for each in self._own_measured(server, group, passes):
            found += 1
            yield each
        if not found and asked >= len(self._dispatch.everyone):
            raise _too_few(server.round, 0, asked)

    def tune(self, server: ServerState, tasks: Cohort, own: ClientStates, lr: float) -> Iterator[tuple[int, State]]:
        """Have clients tune their own models and keep them; what comes back says only how often they were tuned."""
        template = Template({}, dict.fromkeys(KINDS, ()), frozenset(), {})
        facts = {"lr": lr, "first_epoch": tasks.first_epoch}
        requests, tensors, left = [], self._dispatch.sent(server), dict.fromkeys(tasks.clients)
        for client in tasks.clients:
            mine = held(own(client))
            if mine.stage is not None:
                more = {**facts, "used": mine.used, "stage": mine.stage}
                requests.append(self._dispatch.request("tune", client, tasks.round, more, tensors))
        asked = [request for request in requests if request is not None]
        for request, reply in self._dispatch.answers("tune", asked, template, tasks.round):
            if request is not None and reply is not None:
                client = int(request.facts["client"])
                del left[client]
                yield client, after_tuning(own(client), int(request.facts["stage"]) + 1)
        for client in left:
            # Measured untuned, it would pass for a tuned one.
            yield client, after_tuning(own(client), None)

    def _measured(
        self, server: ServerState, errands: Sequence[_Errand], passes: Sequence[DataPass], *, own: bool
    ) -> list[tuple[int, Mapping[str, Tree]]]:
        """What clients measure, in the order given."""
        template = self._templates.of_passes(server, passes)
        common = {"passes": [each.name for each in passes], "own": own}
        model = self._dispatch.sent(server)
        requests: list[Request] = []
        for client, facts, tensors in errands:
            request = self._dispatch.request(
                "measure", client, server.round, {**common, **facts}, {**model, **tensors} if tensors else model
            )
            if request is not None:
                requests.append(request)
        found: dict[int, Mapping[str, Tree]] = {}
        for request, reply in self._dispatch.answers("measure", requests, template, server.round):
            if request is not None and reply is not None:
                totals = unflatten(reply.tensors).items()
                found[id(request)] = {name.partition("/")[2]: tree for name, tree in totals}
        return [(int(each.facts["client"]), found[id(each)]) for each in requests if id(each) in found]

    def _own_measured(
        self, server: ServerState, errands: Sequence[_Errand], passes: Sequence[DataPass]
    ) -> list[tuple[int, Mapping[str, Tree]]]:
        """What clients measure with their own models; who does not is noted."""
        found = self._measured(server, errands, passes, own=True)
        self._note_silent(server, {client for client, _, _ in errands} - {client for client, _ in found})
        return found

    def _note_silent(self, server: ServerState, clients: Iterable[int]) -> None:
        for client in sorted(clients):
            self._dispatch.note("not measured", "measure", server.round, client=client)


def _added(total: Mapping[str, Tree], more: Mapping[str, Tree]) -> dict[str, Tree]:
    return {name: tree_map(torch.add, tree, more[name]) for name, tree in total.items()}


def _too_few(round_: int, found: int, asked: int) -> RunFailed:
    return RunFailed(
        f"{found} of {asked} clients measured the model after round {round_}, which are too few (flower.quorum). Look "
        f"at deployment.jsonl in the run's folder, then go on with --resume."
    )
