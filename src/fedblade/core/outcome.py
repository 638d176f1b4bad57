"""The result of a client's round: its sums, the state it keeps, and its log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums, diagnose_client
from fedblade.core.end import (
    client_numbers,
    end_view,
    float_bytes,
    held_classes,
    kept_state,
    updates,
)
from fedblade.core.finite import refuse_non_finite_state, refuse_non_finite_trace
from fedblade.core.local import Trace, train
from fedblade.core.passes import client_passes
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import MOMENTUM, LocalModel, Problem, Received, receive
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums, payload_bytes
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
class LocalResult:
    """A client's sums (None if it made no step), the state it keeps, its log and the size of its upload.

    `observed` has the sums for diagnostics, which are not sent.
    """

    sums: Sums | None
    state: State
    log: StepLog
    bytes_up: int
    observed: DiagnosticSums = field(default_factory=DiagnosticSums)


def train_client(
    problem: Problem,
    server: ServerState,
    task: ClientTask,
    state: State | None,
    lr: float,
    diagnostics: DiagnosticRequest | None = None,
    *,
    first: bool = False,
) -> LocalResult:
    """One client's round, from the model it receives to its sums. A client that makes no step sends nothing.

    `first` says that the client has the lowest id of the cohort, which matters to `diagnostics`.
    """
    # A caller's no_grad or inference_mode must not switch training off.
    with torch.inference_mode(False), torch.enable_grad():
        with timed("load"):
            received = receive(problem, server, task, state, lr)
        with timed("train"):
            model, trace = train(problem, received)
            log = _summarise(trace, task)
    if task.num_steps == 0:
        return LocalResult(None, state or {}, log, 0)
    with timed("sums"):
        result = finish(problem, received, model, log, client_passes(problem, received, model, problem.method.sums))
    if diagnostics is None:
        return result
    with timed("evaluate"):
        return replace(result, observed=diagnose_client(problem, received, model, diagnostics, first=first))


def finish(
    problem: Problem, received: Received, model: LocalModel, log: StepLog, passes: Mapping[str, Tree]
) -> LocalResult:
    """The sums and the state of a trained client."""
    task, declared = received.task, problem.method.sums
    view = end_view(problem, received, model, passes, client_numbers(problem, task, problem.method.phases))
    sums = Sums.of(declared, view, task.client)
    state = kept_state(problem, received, model, updates(problem, view), problem.shared)
    refuse_non_finite_state(state, task)
    return LocalResult(sums, state, log, _upload_bytes(problem, task, declared, sums))


def adapt_client(
    problem: Problem,
    server: ServerState,
    task: ClientTask,
    state: State | None,
    lr: float,
    phases: tuple[Phase, ...],
) -> LocalResult:
    """Train a client's personal model on `phases` and send nothing; the resulting state has all tensors of the model.

    Momentum starts from zero. A client without a step keeps the model that it would have started from.
    """
    problem, kept = with_fresh_optimiser(problem, state)
    with torch.inference_mode(False), torch.enable_grad():
        received = receive(problem, server, task, kept, lr, phases)
        model, trace = train(problem, received, phases)
    log = _summarise(trace, task)
    if task.num_steps == 0:
        return LocalResult(None, untuned(problem, kept), log, 0)
    return LocalResult(None, tuned(problem, received, model, phases), log, 0)


def with_fresh_optimiser(problem: Problem, state: State | None) -> tuple[Problem, State]:
    """The problem and a client's state without momentum from earlier training."""
    kept = {name: tree for name, tree in (state or {}).items() if name != MOMENTUM}
    return replace(problem, settings=replace(problem.settings, persist=False)), kept


def untuned(problem: Problem, state: State) -> State:
    """The state of a client that makes no step of tuning: its model is the one it would have started from."""
    renewed = {problem.method.own.state} & problem.method.client_update.keys()
    return {name: tree for name, tree in state.items() if name not in renewed}


def tuned(problem: Problem, received: Received, model: LocalModel, phases: Sequence[Phase]) -> State:
    """A client's state with all tensors of the model it has tuned."""
    view = end_view(problem, received, model, {}, client_numbers(problem, received.task, phases))
    state = kept_state(problem, received, model, updates(problem, view), frozenset())
    refuse_non_finite_state(state, received.task)
    return state


def collect_client(
    problem: Problem, server: ServerState, task: ClientTask, state: State | None, sums: tuple[Sum, ...]
) -> LocalResult:
    """A client's part in an exchange: sums made with its present model, without training."""
    received = receive(problem, server, task, state, lr=0.0)
    model = LocalModel(received.anchor, received.buffers, {})
    passes = client_passes(problem, received, model, sums)
    view = end_view(problem, received, model, passes, client_numbers(problem, task, problem.method.phases))
    made = Sums.of(sums, view, task.client)
    return LocalResult(made, state or {}, StepLog(), _upload_bytes(problem, task, sums, made))


def _upload_bytes(problem: Problem, task: ClientTask, declared: tuple[Sum, ...], sums: Sums) -> int:
    return payload_bytes(declared, sums, held_classes(task), float_bytes(problem))


def _summarise(trace: Trace, task: ClientTask) -> StepLog:
    """Totals of a client's steps; a number that is not finite stops the run."""
    return summarise_group([{name: value[None] for name, value in entry.items()} for entry in trace], [task])


def summarise_group(trace: Trace, tasks: Sequence[ClientTask]) -> StepLog:
    """Totals of the steps of clients side by side; an entry of the trace has the first clients of `tasks`."""
    totals = {
        "count_skipped_singletons": float(sum(task.skipped_singletons for task in tasks)),
        "count_idle_clients": float(sum(task.num_steps == 0 for task in tasks)),
    }
    steps = dict.fromkeys(totals, 0)
    for name in sorted({name for entry in trace for name in entry}):
        values = torch.cat([entry[name].detach().to(torch.float64) for entry in trace if name in entry])
        totals[name], steps[name] = float(values.sum()), len(values)
    if not all(math.isfinite(total) for total in totals.values()):
        refuse_non_finite_trace(trace, tasks)
    return StepLog(totals, steps)
