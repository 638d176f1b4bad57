"""Models that nodes measure and tune: the global model on the nodes' samples, and the clients' personal models."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from fedblade.engines.nodes._inquiry import Inquiry
from fedblade.engines.nodes._state_notes import read_note, with_tuning_stage
from fedblade.engines.nodes._templates import Templates
from fedblade.engines.packing import KINDS

_AT_A_TIME = 32
"""Clients that are asked at a time to measure a model."""
_Totals = Mapping[str, Tree]


@dataclass(frozen=True)
class _Measurement:
    """A client that measures a model, and what its request carries besides the model."""

    client: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tree = field(default_factory=dict)


class NodeModels:
    """Has nodes measure and tune models where their samples are; clients that do not answer are noted and left out."""

    def __init__(self, dispatch: Dispatch, templates: Templates) -> None:
        self._dispatch, self._templates = dispatch, templates

    def measure(self, server: ServerState, passes: Sequence[DataPass]) -> _Totals:
        """Run passes with the global model over the test samples of every node.

        A quorum of the clients must answer; while there are fewer, the missing clients are asked again.
        """
        clients, rules = self._dispatch.clients_with_samples, self._dispatch.rules
        wanted, missing = rules.min_replies(len(clients)), clients
        inquiry = self._inquiry(server, passes, rules.attempts)
        total: _Totals | None = None
        for attempt in range(rules.attempts):
            deadline = time.monotonic() + rules.round_seconds
            answered: set[int] = set()
            for begin in range(0, len(missing), _AT_A_TIME):
                group = [_Measurement(client, self._count(client)) for client in missing[begin : begin + _AT_A_TIME]]
                for client, totals in self._measured(inquiry, server, group, passes, personal=False):
                    total = totals if total is None else _added(total, totals)
                    answered.add(client)
            missing = [client for client in missing if client not in answered]
            if len(clients) - len(missing) >= wanted:
                break
            if attempt + 1 < rules.attempts:
                self._dispatch.wait_for(missing, deadline)
        self._note_missing(server, missing)
        if total is None or len(clients) - len(missing) < wanted:
            raise self._too_few(server.round, len(clients) - len(missing), len(clients), inquiry.shortfall(missing))
        return total

    def measure_personal(
        self,
        server: ServerState,
        clients: Iterable[tuple[MeasuredClient, Tensor]],
        part: str,
        passes: Sequence[DataPass],
    ) -> Iterator[tuple[int, _Totals]]:
        """Run passes with the clients' personal models.

        `part` names the samples if nodes hold shares of one data set.
        """
        group: list[_Measurement] = []
        asked: list[int] = []
        inquiry = self._inquiry(server, passes)
        num_measured = 0
        for client, indices in clients:
            note = read_note(client.state)
            asked.append(client.client)
            if note.stage is not None:
                facts = {
                    "part": part,
                    "used": note.used,
                    "stage": note.stage,
                    **self._count(client.client, len(indices)),
                }
                group.append(_Measurement(client.client, facts, {"indices": indices.cpu()}))
            if len(group) == _AT_A_TIME:
                measured = self._personal_measured(inquiry, server, group, passes)
                num_measured += len(measured)
                yield from measured
                group = []
        measured = self._personal_measured(inquiry, server, group, passes)
        num_measured += len(measured)
        yield from measured
        if not num_measured and len(asked) >= len(self._dispatch.clients_with_samples):
            raise self._too_few(server.round, 0, len(asked), inquiry.shortfall(asked))

    def tune(self, server: ServerState, tasks: Cohort, states: ClientStates, lr: float) -> Iterator[tuple[int, State]]:
        """Have clients tune their personal models and keep them; yields the server's new note on each client."""
        template = Template({}, dict.fromkeys(KINDS, ()), frozenset(), {})
        inquiry = Inquiry(self._dispatch, "tune", template, tasks.round)
        requests, tensors, missing = [], self._dispatch.server_tensors(server), dict.fromkeys(tasks.clients)
        for client in tasks.clients:
            note = read_note(states(client))
            if note.stage is not None:
                facts = {"lr": lr, "first_epoch": tasks.first_epoch, "used": note.used, "stage": note.stage}
                request = inquiry.request(client, facts, tensors)
                requests += [] if request is None else [request]
        for request, reply in inquiry.replies(requests, tasks.clients, self._dispatch.rules.round_seconds):
            if request is not None and reply is not None:
                client = int(request.facts["client"])
                del missing[client]
                yield client, with_tuning_stage(states(client), int(request.facts["stage"]) + 1)
        for client in missing:
            # Without this note the untuned model would be measured as if it were tuned.
            yield client, with_tuning_stage(states(client), None)

    def _count(self, client: int, num_indices: int = 0) -> dict[str, int]:
        """How many samples a client measures on: as its node declared, or those that the request names."""
        return {"test_samples": self._dispatch.test_samples(client) or num_indices}

    def _inquiry(self, server: ServerState, passes: Sequence[DataPass], attempts: int = 1) -> Inquiry:
        """The question for the totals of these passes."""
        template = self._templates.of_passes(server, passes)
        return Inquiry(self._dispatch, "measure", template, server.round, attempts)

    def _measured(
        self,
        inquiry: Inquiry,
        server: ServerState,
        group: Sequence[_Measurement],
        passes: Sequence[DataPass],
        *,
        personal: bool,
    ) -> list[tuple[int, _Totals]]:
        """Clients with the totals of their passes, in ascending id: those of the group, and late ones of other groups.

        Clients without a reply are left out.
        """
        common = {"passes": [data_pass.name for data_pass in passes], "own": personal}
        model = self._dispatch.server_tensors(server)
        requests = []
        for measurement in group:
            facts = {**common, **measurement.facts}
            tensors = {**model, **measurement.tensors} if measurement.tensors else model
            request = inquiry.request(measurement.client, facts, tensors)
            requests += [] if request is None else [request]
        clients, totals = [measurement.client for measurement in group], {}
        for request, reply in inquiry.replies(requests, clients, self._dispatch.rules.round_seconds):
            if request is not None and reply is not None:
                trees = unflatten(reply.tensors).items()
                totals[int(request.facts["client"])] = {name.partition("/")[2]: tree for name, tree in trees}
        return sorted(totals.items())

    def _personal_measured(
        self, inquiry: Inquiry, server: ServerState, group: Sequence[_Measurement], passes: Sequence[DataPass]
    ) -> list[tuple[int, _Totals]]:
        """Clients with the totals of their personal models; clients without a reply are noted."""
        clients = {measurement.client for measurement in group}
        measured = dict(self._measured(inquiry, server, group, passes, personal=True))
        self._note_missing(server, clients - measured.keys())
        return [(client, totals) for client, totals in measured.items() if client in clients]

    def _note_missing(self, server: ServerState, clients: Iterable[int]) -> None:
        for client in sorted(clients):
            self._dispatch.note("not measured", "measure", server.round, client=client)

    def _too_few(self, round_: int, num_measured: int, num_asked: int, shortfall: str) -> RunFailed:
        return RunFailed(
            f"{num_measured} of {num_asked} clients measured the model after round {round_}, which are too few "
            f"({self._dispatch.rules.setting('quorum')}). {shortfall} Look at deployment.jsonl in the run's "
            f"folder, then go on with --resume."
        )


def _added(total: _Totals, more: _Totals) -> dict[str, Tree]:
    return {name: tree_map(torch.add, tree, more[name]) for name, tree in total.items()}
