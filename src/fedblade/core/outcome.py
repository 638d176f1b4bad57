"""The rounds of clients that are computed together: their sums, the states they keep, and their logs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums, diagnose
from fedblade.core.clients import Clients, Trace
from fedblade.core.end import Ended, updates
from fedblade.core.finite import refuse_non_finite_trace
from fedblade.core.one_client import OneClient
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import MOMENTUM, LocalModel, Problem
from fedblade.core.receive import receive_clients
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums, contributions
from fedblade.core.timeline import timed
from fedblade.core.tree import State, Tree


@dataclass(frozen=True)
class StepLog:
    """Totals over steps, which can be added up: `count_*` are counts, other totals are divided by their steps."""

    totals: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "StepLog") -> "StepLog":
        names = sorted(self.totals.keys() | other.totals.keys())
        return StepLog(
            {n: self.totals.get(n, 0.0) + other.totals.get(n, 0.0) for n in names},
            {n: self.steps.get(n, 0) + other.steps.get(n, 0) for n in names},
        )

    @property
    def has_steps(self) -> bool:
        """Whether any client made a step: every step logs its losses."""
        return any(self.steps.values())

    def means(self) -> dict[str, float]:
        """Counts as integers, all other numbers as means per step."""
        return {
            n: int(total) if n.startswith("count_") else total / max(self.steps[n], 1)
            for n, total in self.totals.items()
        }


@dataclass(frozen=True)
class ClientsResult:
    """What clients send, added up, the states they keep, the log of their steps and the size of their uploads.

    `observed` has the sums for diagnostics, which are not sent.
    """

    sums: Sums
    states: list[State]
    log: StepLog
    bytes_up: int
    observed: DiagnosticSums = field(default_factory=DiagnosticSums)


def train_clients(
    clients: Clients,
    server: ServerState,
    tasks: Sequence[ClientTask],
    states: Sequence[State | None],
    lr: float,
    diagnostics: DiagnosticRequest | None = None,
    first: int | None = None,
) -> ClientsResult:
    """A round of clients that are computed together, from the model they receive to their sums.

    Clients without a step send nothing and keep their states. `first` is the lowest id of the cohort's clients that
    train, for `diagnostics`.
    """
    if not any(task.num_steps for task in tasks):
        return ClientsResult(Sums(), [state or {} for state in states], _summarise(clients, [], tasks), 0)
    # A caller's no_grad or inference_mode must not switch training off.
    with torch.inference_mode(False), torch.enable_grad():
        with timed("load"):
            received = receive_clients(clients, server, tasks, states, lr)
        with timed("train"):
            model, trace = clients.train(received, tasks)
            log = _summarise(clients, trace, tasks)
    ended = Ended(clients, tasks, received, model)
    with timed("sums"):
        result = finish(ended, ended.passes(clients.problem.method.sums), log)
    if diagnostics is None:
        return result
    with timed("evaluate"):
        return replace(result, observed=diagnose(ended, diagnostics, first))


def finish(ended: Ended, passes: Mapping[str, Tree], log: StepLog) -> ClientsResult:
    """What trained clients send and keep."""
    problem = ended.clients.problem
    declared = problem.method.sums
    sent, updated = ended.map(
        lambda view: (contributions(declared, view), updates(problem, view)), passes, problem.method.phases
    )
    state = ended.keep(updated, problem.shared)
    sums = ended.add_up(declared, sent, state)
    return ClientsResult(sums, ended.split(state), log, ended.bytes_up(declared, sums))


def adapt_clients(
    clients: Clients,
    server: ServerState,
    tasks: Sequence[ClientTask],
    states: Sequence[State | None],
    lr: float,
    phases: Sequence[Phase],
) -> list[State]:
    """Train personal models on `phases` and send nothing; the resulting states have all tensors of the models.

    Momentum starts from zero. Clients without a step keep the models that they would have started from.
    """
    problem = clients.problem
    clients = replace(clients, problem=replace(problem, settings=replace(problem.settings, persist=False)))
    kept = [{name: tree for name, tree in (state or {}).items() if name != MOMENTUM} for state in states]
    if not any(task.num_steps for task in tasks):
        renewed = {problem.method.own.state} & problem.method.client_update.keys()
        return [{name: tree for name, tree in state.items() if name not in renewed} for state in kept]
    with torch.inference_mode(False), torch.enable_grad():
        received = receive_clients(clients, server, tasks, kept, lr, phases)
        model, trace = clients.train(received, tasks, phases)
    _summarise(clients, trace, tasks)
    ended = Ended(clients, tasks, received, model)
    state = ended.keep(ended.map(lambda view: updates(problem, view), {}, phases), frozenset())
    ended.add_up((), {}, state)
    return ended.split(state)


def collect_clients(
    clients: Clients,
    server: ServerState,
    tasks: Sequence[ClientTask],
    states: Sequence[State | None],
    sums: tuple[Sum, ...],
) -> ClientsResult:
    """The clients' part in an exchange: sums made with their present models, without training."""
    received = receive_clients(clients, server, tasks, states, lr=0.0)
    ended = Ended(clients, tasks, received, LocalModel(received.anchor, received.buffers, {}))
    made = ended.sums(sums, ended.passes(sums))
    return ClientsResult(made, [state or {} for state in states], StepLog(), ended.bytes_up(sums, made))


def _summarise(clients: Clients, trace: Trace, tasks: Sequence[ClientTask]) -> StepLog:
    """Totals of the steps; an entry of the trace has the first clients of `tasks`. NaN and infinity end the run."""
    totals = {
        "count_skipped_singletons": float(sum(task.skipped_singletons for task in tasks)),
        "count_idle_clients": float(sum(task.num_steps == 0 for task in tasks)),
    }
    steps = dict.fromkeys(totals, 0)
    entries = [clients.with_axis({"": dict(entry)})[""] for entry in trace]
    for name in sorted({name for entry in entries for name in entry}):
        values = torch.cat([entry[name].detach().to(torch.float64) for entry in entries if name in entry])
        totals[name], steps[name] = float(values.sum()), len(values)
    if not all(math.isfinite(total) for total in totals.values()):
        refuse_non_finite_trace(entries, tasks)
    return StepLog(totals, steps)


@dataclass(frozen=True)
class LocalResult:
    """The result of one client: its sums (None if it made no step), the state it keeps, and the rest as in a group."""

    sums: Sums | None
    state: State
    log: StepLog
    bytes_up: int

    @staticmethod
    def of(result: ClientsResult, task: ClientTask) -> "LocalResult":
        """The result of a group of this one client."""
        sums = result.sums if task.num_steps else None
        return LocalResult(sums, result.states[0], result.log, result.bytes_up)


def train_client(
    problem: Problem, server: ServerState, task: ClientTask, state: State | None, lr: float
) -> LocalResult:
    """One client's round."""
    return LocalResult.of(train_clients(OneClient(problem), server, [task], [state], lr), task)


def collect_client(
    problem: Problem, server: ServerState, task: ClientTask, state: State | None, sums: tuple[Sum, ...]
) -> LocalResult:
    """One client's part in an exchange."""
    result = collect_clients(OneClient(problem), server, [task], [state], sums)
    return LocalResult(result.sums, result.states[0], result.log, result.bytes_up)
