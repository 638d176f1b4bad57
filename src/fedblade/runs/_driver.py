"""The rounds of a run: train, combine, evaluate, record, save."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedblade.core.cohort import Cohort
from fedblade.core.disk_store import DiskStore
from fedblade.core.finite import refuse_non_finite_server
from fedblade.core.listener import RoundRecord, RunListener
from fedblade.core.metric import Metric
from fedblade.core.plan import IntArray
from fedblade.core.state import ClientStore, MemoryStore, ServerState
from fedblade.core.timeline import timed, wait_for
from fedblade.core.tree import Tree, tree_bytes
from fedblade.engines.base import RoundOutcome
from fedblade.results import DIAGNOSTICS, HISTORY, RunDirectory, numbered
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._client_records import ClientRecord
from fedblade.runs._diagnostic_log import DiagnosticLog
from fedblade.runs._diagnostics import diagnostic_request, metrics_due
from fedblade.runs._ending import STOPPED, standing_stop, stop_mark
from fedblade.runs._evaluation import Evaluation, evaluate, evaluated_state
from fedblade.runs._exchanges import RoundTraffic, choose_cohort, download_bytes, exchange_after_run, run_exchanges
from fedblade.runs._memory import explained_out_of_memory
from fedblade.runs._notes import start_notes
from fedblade.runs._overview import overview
from fedblade.runs._personal_models import PersonalModels
from fedblade.runs._setup import Setup
from fedblade.runs._threads import compute_settings
from fedblade.runs._untrained import refuse_untrained, untrained_count


class Driver:
    """Carries a run from its last checkpoint to its last round. Without a `directory` everything stays in memory.

    `store` keeps the clients' states, by default in the run folder or in memory.

    `state` and `history` always belong together: both change only when a round is complete. Exchanges after the run
    belong to the last round: a run that stops in them does the last round again. The personal models come last.
    `clients` has one record per client whose personal model was measured, and a run that stops there goes on with the
    next client. `has_started` says whether the state of the run is known: before, nothing on the disk may be replaced.
    """

    def __init__(
        self, setup: Setup, directory: RunDirectory | None, listener: RunListener, store: ClientStore | None = None
    ) -> None:
        self._setup = setup
        self._directory = directory
        self._listener = listener
        self._store: ClientStore = _default_store(directory) if store is None else store
        self._checkpoints = None if directory is None else Checkpoints(directory)
        self._personal_models = PersonalModels(setup, directory, self._store)
        self._saved_round = 0
        self._has_fixed_tensors = np.zeros(setup.clients.train.num_clients, dtype=bool)
        self.state = setup.start
        self.history: list[RoundRecord] = []
        self.diagnostics = DiagnosticLog(directory)
        self.has_started = False

    @property
    def clients(self) -> list[ClientRecord]:
        """One record per client whose personal model was measured after the last round."""
        return self._personal_models.records

    @property
    def evaluated_state(self) -> ServerState:
        """The model that is measured and saved."""
        return evaluated_state(self._setup, self.state)

    @property
    def is_over(self) -> bool:
        """Whether all rounds are done, or the run has ended before."""
        config = self._setup.config
        return self.state.round >= config.federation.rounds or standing_stop(self.history, config) is not None

    @property
    def keeps_client_states(self) -> bool:
        """Whether the run needs more than the server's state to go on."""
        return bool(self._setup.method.client_state) or self._setup.config.optimizer.persist

    def run(self) -> None:
        """Do the rounds that are left, then tune and measure the clients' personal models."""
        with explained_out_of_memory(), compute_settings(self._setup):
            wait_for(self._setup.test_order.device)
            traffic = self._start()
            while not self.is_over:
                round_ = self.state.round
                with timed("round", round_ + 1):
                    self._run_round(round_, traffic)
                self._listener.on_round(self.history[-1])
                traffic = RoundTraffic()
            refuse_untrained(self._setup, self.history)
            with timed("evaluate"):
                self._personal_models.measure(self.evaluated_state, self._listener.on_personal_model)

    def _start(self) -> RoundTraffic:
        """Go back to the last checkpoint, or run the exchanges before the run; returns what they sent."""
        self._resume()
        self.has_started = True
        self._listener.on_start(overview(self._setup), self.history)
        for note in start_notes(self._setup):
            self._listener.on_note(note)
        traffic = RoundTraffic()
        if self.state.round == 0:
            self.state = run_exchanges(
                self._setup, self._store, "before_run", self.state, self._setup.eligible, traffic
            )
        return traffic

    def _run_round(self, round_: int, traffic: RoundTraffic) -> None:
        """One round (counted from 0), from the cohort to the record in the history."""
        setup, config = self._setup, self._setup.config
        if self._directory is not None:
            self._directory.check_held()
        lr, metrics = config.optimizer.rate(round_, config.federation.rounds), metrics_due(setup, round_)
        started = time.perf_counter()

        # 1. The clients of the cohort receive the model. Those that answer train it on their data and send sums.
        cohort = choose_cohort(setup, self._store, self.state, traffic)
        answering = setup.cohorts.answering(round_, cohort)
        traffic.down += len(cohort) * download_bytes(setup, self.state).total + self._fixed_tensor_bytes(cohort)
        outcome = self._train(round_, answering, lr, metrics)
        traffic.up += outcome.bytes_up

        # 2. The server turns the sums into its next state. Some methods ask the clients again.
        with timed("server"):
            state = setup.method.server(self.state, outcome.sums) if outcome.sums.trees else self.state
        state = run_exchanges(setup, self._store, "after_round", state.replace(round=round_ + 1), answering, traffic)
        refuse_non_finite_server(state, setup.problem.shared)
        seconds = time.perf_counter() - started - outcome.observed.seconds

        # 3. The new model is measured, and it is decided whether the run ends with it.
        evaluation = self._evaluate(state, metrics, outcome.observed.totals())
        record = self._record(round_, cohort, outcome, state) | self._measured(evaluation)
        record |= {"seconds": seconds, "wall_seconds": time.perf_counter() - started, "lr": lr, **outcome.log.means()}
        mark = stop_mark([*self.history, record], config, self._listener.stops(dict(record)))
        if mark is not None:
            record[STOPPED] = mark
            if len(metrics) < len(setup.metrics):
                evaluation = self._evaluate(state, setup.metrics, {})
                record |= self._measured(evaluation)

        # 4. After the last round, some methods change the model once more. The round is recorded and saved.
        is_last = mark is not None or state.round == config.federation.rounds
        state, last = exchange_after_run(setup, self._store, state, traffic) if is_last else (state, {})
        record |= {"bytes_up": traffic.up, "bytes_down": traffic.down} | (outcome.log + traffic.log).means() | last
        record["wall_seconds"] = time.perf_counter() - started
        self._complete(state, record, evaluation, is_last=is_last)

    def _train(self, round_: int, cohort: IntArray, lr: float, metrics: Sequence[Metric]) -> RoundOutcome:
        """Train the clients of the cohort that answer. Metrics may ask for sums over the trained clients."""
        outcome = self._setup.engine.train(
            self.state,
            Cohort(self._setup.planner, round_, tuple(int(client) for client in cohort)),
            self._store,
            lr,
            lambda client: self._listener.on_client(round_ + 1, client),
            diagnostic_request(self._setup, metrics),
        )
        return outcome if outcome.contributors is not None else replace(outcome, contributors=tuple(cohort.tolist()))

    def _evaluate(
        self, state: ServerState, metrics: Sequence[Metric], observed: Mapping[str, Tree]
    ) -> Evaluation | None:
        """Measure the model of a round; None if the round is not evaluated."""
        with timed("evaluate"):
            return evaluate(self._setup, state, self._store, metrics, observed) if metrics else None

    def _record(self, round_: int, cohort: IntArray, outcome: RoundOutcome, state: ServerState) -> RoundRecord:
        """What the record of a round says of its clients and of the method's state."""
        contributors = list(outcome.contributors or ())
        record: RoundRecord = {"round": round_ + 1, "clients": cohort.tolist(), "contributors": contributors}
        gauges = {name: gauge(state) for name, gauge in self._setup.method.gauges.items()}
        return record | untrained_count(outcome.log) | gauges

    def _measured(self, evaluation: Evaluation | None) -> RoundRecord:
        """The fields of the round record that come from an evaluation."""
        if evaluation is None:
            return {}
        setup = self._setup
        return evaluation.record | setup.claims.mark_round(setup.method.accuracy_of, evaluation.record)

    def _complete(
        self, state: ServerState, record: RoundRecord, evaluation: Evaluation | None, *, is_last: bool
    ) -> None:
        """Write the record of a round, make its state the state of the run, and save a checkpoint if one is due."""
        with timed("save"):
            if evaluation is not None:
                self.diagnostics.append(state.round, evaluation.lists)
            if self._directory is not None:
                self._directory.append(HISTORY, record)
            if evaluation is not None:
                self._personal_models.keep_best(state, evaluation)
            self.state = state
            self.history.append(record)
            if state.round % self._setup.config.checkpoint.every == 0 or is_last:
                self.save()

    def save(self) -> None:
        """Save a checkpoint of the last complete round, unless there is one."""
        if self._checkpoints is None or self._saved_round == self.state.round:
            return
        self._store.flush()
        keep, facts = self._setup.config.checkpoint.keep, self._personal_models.facts()
        oldest = self._checkpoints.save(self.state, keep, facts, self._store)
        self._store.forget_before(oldest)
        self._saved_round = self.state.round

    def save_in(self, checkpoints: Checkpoints) -> None:
        """Save the last complete round of a run without states of clients in another folder."""
        if self._personal_models.best is not None:
            checkpoints.save_best(*self._personal_models.best)
        checkpoints.save(self.state, self._setup.config.checkpoint.keep, self._personal_models.facts(), MemoryStore())

    def _resume(self) -> None:
        """Go back to the newest checkpoint of the run folder, if there is one."""
        if self._directory is None or self._checkpoints is None:
            return
        restored = self._checkpoints.restore(self._setup.start, self._store, self._setup.config.checkpoint.every)
        self.state, notes = restored.state, list(restored.notes)
        self._saved_round = self.state.round
        self.history, mended = self._directory.recover(HISTORY, self.state.round)
        mended_too = self._directory.mend(DIAGNOSTICS, self.state.round)
        self._personal_models.restore(self.state, restored.facts, self.history)
        for record in self.history:
            self._has_fixed_tensors[record["clients"]] = True
        if len(self.history) < self.state.round:
            missing = sorted(set(range(1, self.state.round + 1)).difference(record["round"] for record in self.history))
            notes.append(f"the history lacks {numbered('round', missing)}; these lines cannot be restored.")
        for note in (*notes, *mended, *mended_too):
            self._listener.on_note(note)

    def _fixed_tensor_bytes(self, cohort: IntArray) -> int:
        """Bytes of the tensors that never change: a client receives them once, in its first round."""
        new_clients = len(cohort) - int(self._has_fixed_tensors[cohort].sum())
        self._has_fixed_tensors[cohort] = True
        return tree_bytes(self.state.fixed) * new_clients if self._setup.method.sums else 0


def _default_store(directory: RunDirectory | None) -> ClientStore:
    return MemoryStore() if directory is None else DiskStore(directory.checkpoints / "clients")
