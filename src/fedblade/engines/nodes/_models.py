"""Models that nodes measure and tune: the global one on their samples, and their clients' own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedblade.core.cohort import Cohort
from fedblade.core.errors import RunFailed
from fedblade.core.state import ServerState, unflatten
from fedblade.core.sums import DataPass
from fedblade.core.tree import State, Tree, tree_map
from fedblade.engines._wire import KINDS
from fedblade.engines.base import Holder, OwnStates
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._dispatch import Dispatch
from fedblade.engines.nodes._ledger import after_tuning, held
from fedblade.engines.nodes._post import Request
from fedblade.engines.nodes._templates import Templates

_AT_A_TIME = 32
"""Own models that are measured at a time."""
_Errand = tuple[int, Mapping[str, Any], Tree]
"""A client, and what its request says besides."""


class NodeModels:
    """What nodes find out about models where their samples are. Clients that do not answer are left out."""

    def __init__(self, dispatch: Dispatch, templates: Templates) -> None:
        self._dispatch, self._templates = dispatch, templates

    def measure(self, server: ServerState, passes: Sequence[DataPass]) -> Mapping[str, Tree]:
        """Run passes with the global model over the test samples of every node."""
        everyone: list[_Errand] = [(client, {}, {}) for client in self._dispatch.everyone]
        total: Mapping[str, Tree] | None = None
        for _, each in self._measured(server, everyone, passes, own=False):
            if total is None:
                total = each
            else:
                total = {name: tree_map(torch.add, tree, each[name]) for name, tree in total.items()}
        if total is None:
            raise _nobody(server.round)
        return total

    def measure_own(
        self,
        server: ServerState,
        clients: Iterable[tuple[Holder, Tensor]],
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
                for each in self._measured(server, group, passes, own=True):
                    found += 1
                    yield each
                group = []
        for each in self._measured(server, group, passes, own=True):
            found += 1
            yield each
        if not found and asked >= len(self._dispatch.everyone):
            raise _nobody(server.round)

    def tune(self, server: ServerState, tasks: Cohort, own: OwnStates, lr: float) -> Iterator[tuple[int, State]]:
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
            if request is not None and reply is not None and reply.tensors:
                totals = unflatten(reply.tensors).items()
                found[id(request)] = {name.partition("/")[2]: tree for name, tree in totals}
        return [(int(each.facts["client"]), found[id(each)]) for each in requests if id(each) in found]


def _nobody(round_: int) -> RunFailed:
    return RunFailed(
        f"no node could measure the model after round {round_}. Look at deployment.jsonl in the run's folder, then go "
        f"on with --resume."
    )
