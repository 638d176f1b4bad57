"""The rounds of a run: plan, train, aggregate, evaluate, record, save."""

import time
from typing import Any, Literal, Protocol

import numpy as np

from fedblade import protocols
from fedblade.core.cohort import Cohort
from fedblade.core.finite import refuse_non_finite_server
from fedblade.core.plan import IntArray
from fedblade.core.state import ClientStore, DiskStore, MemoryStore, ServerState
from fedblade.core.timeline import timed, wait_for
from fedblade.core.tree import tree_bytes
from fedblade.results import DIAGNOSTICS, HISTORY, RunDirectory
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._diagnostics import diagnostic_request, metrics_due
from fedblade.runs._evaluation import Evaluation, evaluate, measured_state
from fedblade.runs._memory import lack_of_memory_told
from fedblade.runs._own_models import OwnModels
from fedblade.runs._precision import float32_products
from fedblade.runs._setup import MOST_MEASURED, Setup
from fedblade.runs._threads import fitting_threads
from fedblade.runs._traffic import Bytes, bytes_down, exchange_bytes_down
from fedblade.runs._untrained import counted, refuse_untrained

RoundRecord = dict[str, Any]
When = Literal["before_run", "after_round", "after_run"]


class RunListener(Protocol):
    """Is told how a run goes; progress bars and trackers are listeners."""

    def on_start(self, setup: Setup, history: list[RoundRecord]) -> None:
        """The run begins, or goes on after the rounds in `history`."""

    def on_client(self, round_: int, client: int) -> None:
        """A client of round `round_` (from 1) has finished."""

    def on_round(self, row: RoundRecord) -> None:
        """A round has been recorded."""

    def on_own_model(self, done: int, total: int) -> None:
        """After the rounds, the own models of `done` of `total` clients have been tuned and measured."""

    def on_note(self, text: str) -> None:
        """Something a user should know."""


class Driver:
    """Carries a run from its last checkpoint to its last round. `directory` None keeps everything in memory.

    `store` has the clients' states, where they are not kept in the folder.

    `state` and `history` always belong together: both change only when a round is complete. The exchanges at the end
    of the run complete the last round, so that a run cut short in them does that round again and them once. Own models
    of clients come last: `clients` has a row for each that was tuned and measured, and a run cut short there goes on
    with the next client.
    """

    def __init__(
        self, setup: Setup, directory: RunDirectory | None, listener: RunListener, store: ClientStore | None = None
    ) -> None:
        self._setup = setup
        self._directory = directory
        self._watcher = listener
        self._store: ClientStore = _own_store(directory) if store is None else store
        self._checkpoints = None if directory is None else Checkpoints(directory)
        self._own = OwnModels(setup, directory, self._store)
        self._saved_round = 0
        self.state = setup.start
        self.history: list[RoundRecord] = []
        self.diagnostics: list[RoundRecord] = []
        self._met = np.zeros(setup.clients.train.num_clients, dtype=bool)

    @property
    def clients(self) -> list[RoundRecord]:
        """One row per client whose own model was measured after the rounds."""
        return self._own.rows

    @property
    def measured_state(self) -> ServerState:
        """The model that is measured and saved."""
        return measured_state(self._setup, self.state)

    def run(self) -> None:
        """Do the rounds that are left, with as many threads as the network can use and the run's precision."""
        products = float32_products(tf32=self._setup.config.general.tf32)
        with lack_of_memory_told(), fitting_threads(self._setup), products:
            self._run()

    def _run(self) -> None:
        wait_for(self._setup.test_order.device)
        self._resume()
        config = self._setup.config
        self._watcher.on_start(self._setup, self.history)
        for note in (*self._setup.notes, *_population_notes(self._setup), *self._own.notes):
            self._watcher.on_note(note)
        before = Bytes()
        if self.state.round == 0:
            self.state = self._exchange("before_run", self.state, self._setup.eligible, before)
        for round_ in range(self.state.round, config.federation.rounds):
            with timed("round", round_ + 1):
                self._complete(*self._round(round_, before))
            before = Bytes()
            self._watcher.on_round(self.history[-1])
        refuse_untrained(self._setup, self.history)
        with timed("evaluate"):
            self._own.measure(self.measured_state, self._watcher.on_own_model)

    def _complete(self, state: ServerState, row: RoundRecord, found: Evaluation | None) -> None:
        """Record a round and make its state the run's."""
        with timed("save"):
            lists = [] if found is None or not found.lists else [{"round": state.round, **found.lists}]
            self.diagnostics += lists
            if self._directory is not None:
                for each in lists:
                    self._directory.append(DIAGNOSTICS, each)
                self._directory.append(HISTORY, row)
            if found is not None:
                self._own.see(state, found)
            self.state = state
            self.history.append(row)
            checkpoint, rounds = self._setup.config.checkpoint, self._setup.config.federation.rounds
            if state.round % checkpoint.every == 0 or state.round == rounds:
                self.save()

    def save(self) -> None:
        """Checkpoint the last complete round, if that has not been done."""
        if self._checkpoints is None or self._saved_round == self.state.round:
            return
        oldest = self._checkpoints.save(self.state, self._setup.config.checkpoint.keep, self._own.facts())
        self._store.forget_before(oldest)
        self._saved_round = self.state.round

    def _resume(self) -> None:
        if self._directory is None or self._checkpoints is None:
            return
        self.state, facts, notes = self._checkpoints.restore(self._setup.start)
        self._saved_round = self.state.round
        self.history = self._directory.cut_history(self.state.round)
        self.diagnostics = self._directory.rows(DIAGNOSTICS)
        self._own.restore(facts, self.history)
        for round_ in range(self.state.round):
            self._met[self._cohort(round_)] = True
        for note in notes:
            self._watcher.on_note(note)

    def _round(self, round_: int, sent: Bytes) -> tuple[ServerState, RoundRecord, Evaluation | None]:
        """One round: the new state, its line in the history and what was measured; `sent` is what it starts with."""
        setup, config, cohort = self._setup, self._setup.config, self._cohort(round_)
        last = round_ + 1 == config.federation.rounds
        lr = config.optimizer.rate(round_, config.federation.rounds)
        sent.down += len(cohort) * bytes_down(setup, self.state) + self._first_contact_bytes(cohort)
        began = time.perf_counter()
        due = last or (round_ + 1) % config.evaluation.every == 0
        metrics = metrics_due(setup, round_) if due else ()
        outcome = setup.engine.train(
            self.state,
            self._tasks(round_, cohort),
            self._store,
            lr,
            lambda client: self._watcher.on_client(round_ + 1, client),
            diagnostic_request(setup, metrics),
        )
        with timed("server"):
            state = setup.method.server(self.state, outcome.sums) if outcome.sums.trees else self.state
        sent.up += outcome.bytes_up
        state = self._exchange("after_round", state.replace(round=round_ + 1), cohort, sent)
        refuse_non_finite_server(state, setup.problem.shared)
        seconds = time.perf_counter() - began - outcome.observed.seconds
        with timed("evaluate"):
            found = evaluate(setup, state, self._store, metrics, outcome.observed.totals()) if due else None
        row: RoundRecord = {"round": round_ + 1, "clients": [int(client) for client in cohort]}
        row |= {} if found is None else found.row
        gauges = {name: gauge(state) for name, gauge in setup.method.gauges.items()}
        ended, calibrated = self._after_run(state, sent) if last else (state, {})
        row |= {"seconds": seconds, "lr": lr, "bytes_up": sent.up, "bytes_down": sent.down}
        return ended, row | (outcome.log + sent.log).means() | counted(outcome.log) | gauges | calibrated, found

    def _cohort(self, round_: int) -> IntArray:
        """The clients of a round."""
        return self._setup.eligible if self._setup.method.participation == "all" else self._setup.cohorts[round_]

    def _after_run(self, state: ServerState, sent: Bytes) -> tuple[ServerState, RoundRecord]:
        """The exchanges at the end of the run: the model they leave, what it is worth, and the time they took.

        The last row's other fields stay those of the model before them, so that means over rounds mix nothing.
        """
        setup = self._setup
        if all(exchange.when != "after_run" for exchange in setup.method.exchanges):
            return state, {}
        began = time.perf_counter()
        state = self._exchange("after_run", state, setup.eligible, sent)
        refuse_non_finite_server(state, setup.problem.shared)
        seconds = time.perf_counter() - began
        with timed("evaluate"):
            measured = evaluate(setup, state, self._store, setup.metrics, {}).row
        row = {f"{protocols.CALIBRATED}{key.removeprefix('test_')}": value for key, value in measured.items()}
        return state, row | {"exchange_seconds": seconds}

    def _exchange(self, when: When, state: ServerState, clients: IntArray, sent: Bytes) -> ServerState:
        """Run the method's exchanges of this moment and add what they send to `sent`."""
        for exchange in self._setup.method.exchanges:
            if exchange.when == when:
                chosen = clients if exchange.clients == "cohort" else self._setup.eligible
                tasks = self._tasks(max(state.round - 1, 0), chosen)
                outcome = self._setup.engine.collect(state, tasks, self._store, exchange.sums)
                sent.up += outcome.bytes_up
                sent.log = sent.log + outcome.log
                sent.down += len(chosen) * exchange_bytes_down(self._setup, state, exchange)
                with timed("server"):
                    state = exchange.server(state, outcome.sums)
        return state

    def _tasks(self, round_: int, clients: IntArray) -> Cohort:
        return Cohort(self._setup.planner, round_, tuple(int(client) for client in clients))

    def _first_contact_bytes(self, cohort: IntArray) -> int:
        """Tensors that never change, sent to the clients that were never in a cohort before."""
        new = len(cohort) - int(self._met[cohort].sum())
        self._met[cohort] = True
        return tree_bytes(self.state.fixed) * new if self._setup.method.sums else 0


def _own_store(directory: RunDirectory | None) -> ClientStore:
    return MemoryStore() if directory is None else DiskStore(directory.checkpoints / "clients")


def _population_notes(setup: Setup) -> list[str]:
    """What costs as much as a large population has clients, whatever the cohort."""
    method, everyone = setup.method, len(setup.eligible)
    if everyone <= MOST_MEASURED:
        return []
    trained = ["every client trains in every round"] if method.participation == "all" else []
    asked = ["every client is asked for sums"] if any(each.clients == "all" for each in method.exchanges) else []
    name = setup.config.method.name
    return [f"{name}: {what}, and there are {everyone:,} of them; this takes long" for what in (*trained, *asked)]
