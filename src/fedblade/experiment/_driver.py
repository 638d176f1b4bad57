"""The rounds of a run: plan, train, aggregate, evaluate, record, save."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fedblade.core.errors import CorruptFile, NonFinite
from fedblade.core.plan import ClientTask, IntArray
from fedblade.core.state import ClientStore, DiskStore, MemoryStore, ServerState
from fedblade.core.tree import tree_bytes, tree_is_finite, tree_select
from fedblade.experiment._directory import CLIENTS, HISTORY, RunDirectory
from fedblade.experiment._evaluate import evaluate, measured_state
from fedblade.experiment._personal import measure_clients, stages_after_run
from fedblade.experiment._setup import Setup
from fedblade.experiment._threads import fitting_threads

Row = dict[str, Any]
CALIBRATED = "calibrated_"
"""Begins the fields of the last row that measure the model again, after the exchanges at the end of the run."""
When = Literal["before_run", "after_round", "after_run"]


class Watcher(Protocol):
    """Is told how a run goes; progress bars and trackers are watchers."""

    def on_start(self, setup: Setup, history: list[Row]) -> None:
        """The run begins, or goes on after the rounds in `history`."""

    def on_client(self, round_: int, client: int) -> None:
        """A client of round `round_` (from 1) has finished."""

    def on_round(self, row: Row) -> None:
        """A round has been recorded."""

    def on_own_model(self, done: int, total: int) -> None:
        """After the rounds, the own models of `done` of `total` clients have been tuned and measured."""

    def on_note(self, text: str) -> None:
        """Something a user should know."""


class Driver:
    """Carries a run from its last checkpoint to its last round. `directory` None keeps everything in memory.

    `state` and `history` always belong together: both change only when a round is complete. The exchanges at the end
    of the run complete the last round, so that a run cut short in them does that round again and them once. Own models
    of clients come last: `clients` has a row for each that was tuned and measured, and a run cut short there goes on
    with the next client.
    """

    def __init__(self, setup: Setup, directory: RunDirectory | None, watcher: Watcher) -> None:
        self._setup = setup
        self._directory = directory
        self._watcher = watcher
        self._store: ClientStore = MemoryStore() if directory is None else DiskStore(directory.checkpoints / "clients")
        self._saved_round = 0
        self.state = setup.start
        self.history: list[Row] = []
        self.clients: list[Row] = []
        self._best: tuple[ServerState, float] | None = None
        self._met: set[int] = set()

    @property
    def measured_state(self) -> ServerState:
        """The model that is measured and saved."""
        return measured_state(self._setup, self.state)

    def run(self) -> None:
        """Do the rounds that are left, with as many threads as the network can use."""
        with fitting_threads(self._setup):
            self._run()

    def _run(self) -> None:
        self._resume()
        config = self._setup.config
        self._watcher.on_start(self._setup, self.history)
        before = _Bytes()
        if self.state.round == 0:
            self.state = self._exchange("before_run", self.state, self._setup.eligible, before)
        for round_ in range(self.state.round, config.federation.rounds):
            state, row = self._round(round_, before)
            before = _Bytes()
            if self._directory is not None:
                self._directory.append(HISTORY, row)
            self.state = state
            self.history.append(row)
            if state.round % config.checkpoint.every == 0 or state.round == config.federation.rounds:
                self.save()
            self._watcher.on_round(row)
        self._own_models()

    def save(self) -> None:
        """Checkpoint the last complete round, if that has not been done."""
        if self._directory is None or self._saved_round == self.state.round:
            return
        oldest = self._directory.save(self.state, self._setup.config.checkpoint.keep)
        self._store.forget_before(oldest)
        self._saved_round = self.state.round

    def _resume(self) -> None:
        if self._directory is None:
            return
        self.state, notes = self._directory.restore(self._setup.start)
        self._saved_round = self.state.round
        self.history = self._directory.cut_history(self.state.round)
        self._best = self._directory.best(self._setup.start)
        self._met = {client for round_ in range(self.state.round) for client in self._cohort(round_).tolist()}
        if self._keeps_best and self._best is None and any("test_accuracy" in row for row in self.history):
            raise CorruptFile(
                f"the best model in '{self._directory.checkpoints}' is gone. Put it back, or start a new run elsewhere."
            )
        for note in notes:
            self._watcher.on_note(note)

    def _round(self, round_: int, sent: "_Bytes") -> tuple[ServerState, Row]:
        """One round, from the plan to the new state and its line in the history; `sent` is what it starts with."""
        setup, config, cohort = self._setup, self._setup.config, self._cohort(round_)
        last = round_ + 1 == config.federation.rounds
        lr = config.optimizer.rate(round_, config.federation.rounds)
        sent.down += self._model_bytes(self.state, len(cohort)) + self._first_contact_bytes(cohort)
        began = time.perf_counter()
        outcome = setup.engine.train(
            self.state,
            self._tasks(round_, cohort),
            self._store,
            lr,
            lambda client: self._watcher.on_client(round_ + 1, client),
        )
        state = setup.method.server(self.state, outcome.sums) if outcome.sums.trees else self.state
        sent.up += outcome.bytes_up
        state = self._exchange("after_round", state.replace(round=round_ + 1), cohort, sent)
        _refuse_non_finite(state, setup.problem.shared)
        seconds = time.perf_counter() - began
        row: Row = {"round": round_ + 1, "clients": [int(client) for client in cohort]}
        if last or (round_ + 1) % config.evaluation.every == 0:
            row |= evaluate(setup, state, self._store)
            self._keep_best(state, row)
        gauges = {name: gauge(state) for name, gauge in setup.method.gauges.items()}
        state, calibrated = self._after_run(state, sent) if last else (state, {})
        row |= {"seconds": seconds, "lr": lr, "bytes_up": sent.up, "bytes_down": sent.down}
        return state, row | outcome.log.means() | gauges | calibrated

    def _cohort(self, round_: int) -> IntArray:
        """The clients of a round."""
        return self._setup.eligible if self._setup.method.participation == "all" else self._setup.cohorts[round_]

    @property
    def _keeps_best(self) -> bool:
        """P-GAPA tunes the best global model, so it must still be there after the last round."""
        return self._setup.config.evaluation.protocol == "gapa" and not self._setup.method.has_own_models

    def _keep_best(self, state: ServerState, row: Row) -> None:
        """Keep the model of a round if it is the best so far and will be needed."""
        if not self._keeps_best:
            return
        if self._best is None or row["test_accuracy"] > self._best[1]:
            self._best = (measured_state(self._setup, state), row["test_accuracy"])
            if self._directory is not None:
                self._directory.save_best(*self._best)

    def _own_models(self) -> None:
        """Tune and measure the clients' own models, as far as that was not done before."""
        stages = stages_after_run(self._setup.method, self._setup.config.evaluation.protocol)
        if stages is None:
            return
        state = self.measured_state if self._best is None else self._best[0]
        if self._directory is not None:
            self.clients = self._directory.rows(CLIENTS)
            self._directory.rewrite(CLIENTS, self.clients)
        done = {int(row["client"]) for row in self.clients}
        for row in measure_clients(self._setup, state, self._store, stages, done):
            if self._directory is not None:
                self._directory.append(CLIENTS, row)
            self.clients.append(row)
            self._watcher.on_own_model(len(self.clients), len(self._setup.eligible))

    def _after_run(self, state: ServerState, sent: "_Bytes") -> tuple[ServerState, Row]:
        """The exchanges at the end of the run: the model they leave, what it is worth, and the time they took.

        The last row's other fields stay those of the model before them, so that means over rounds mix nothing.
        """
        setup = self._setup
        if all(exchange.when != "after_run" for exchange in setup.method.exchanges):
            return state, {}
        began = time.perf_counter()
        state = self._exchange("after_run", state, setup.eligible, sent)
        _refuse_non_finite(state, setup.problem.shared)
        seconds = time.perf_counter() - began
        measured = evaluate(setup, state, self._store)
        row = {f"{CALIBRATED}{key.removeprefix('test_')}": value for key, value in measured.items()}
        return state, row | {"exchange_seconds": seconds}

    def _exchange(self, when: When, state: ServerState, clients: IntArray, sent: "_Bytes") -> ServerState:
        """Run the method's exchanges of this moment and add what they send to `sent`."""
        for exchange in self._setup.method.exchanges:
            if exchange.when == when:
                chosen = clients if exchange.clients == "cohort" else self._setup.eligible
                tasks = self._tasks(max(state.round - 1, 0), chosen)
                outcome = self._setup.engine.collect(state, tasks, self._store, exchange.sums)
                sent.up += outcome.bytes_up
                sent.down += self._model_bytes(state, len(chosen))
                state = exchange.server(state, outcome.sums)
        return state

    def _tasks(self, round_: int, clients: IntArray) -> Iterator[ClientTask]:
        return (self._setup.planner.task(round_, int(client)) for client in clients)

    def _model_bytes(self, state: ServerState, num_clients: int) -> int:
        """What the server sends to so many clients: shared weights and statistics, and its state."""
        model = tree_select(state.params | state.buffers, self._setup.problem.shared)
        return num_clients * (
            tree_bytes(model) + sum(tree_bytes(state.extra[name]) for name in self._setup.method.sent)
        )

    def _first_contact_bytes(self, cohort: IntArray) -> int:
        """Tensors that never change, sent to the clients that were never in a cohort before."""
        new = set(cohort.tolist()) - self._met
        self._met |= new
        return tree_bytes(self.state.fixed) * len(new) if self._setup.method.sums else 0


@dataclass
class _Bytes:
    """Traffic of a round so far."""

    up: int = 0
    down: int = 0


def _refuse_non_finite(state: ServerState, shared: frozenset[str]) -> None:
    """Stop before a broken model is evaluated, recorded or saved (EC-11)."""
    statistics = tree_select(state.buffers, shared)
    for part, tree in (("parameters", state.params), ("statistics", statistics), *state.extra.items()):
        if not tree_is_finite(tree):
            raise NonFinite(
                f"the server's {part} became non-finite in round {state.round}. "
                f"Lower the learning rate (optimizer.lr) or the strength of the server's step."
            )
