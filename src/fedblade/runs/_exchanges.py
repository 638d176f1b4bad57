"""What clients send besides the sums of their training, and the bytes that travel in a round."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedblade import protocols
from fedblade.core.client_losses import CLIENT_LOSSES
from fedblade.core.cohort import Cohort
from fedblade.core.finite import refuse_non_finite_server
from fedblade.core.method import Exchange
from fedblade.core.outcome import StepLog
from fedblade.core.plan import IntArray
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.timeline import timed
from fedblade.core.tree import tree_bytes, tree_select
from fedblade.runs._evaluation import evaluate
from fedblade.runs._setup import Setup

When = Literal["before_run", "after_round", "after_run"]


@dataclass
class RoundTraffic:
    """Bytes of a round so far, up and down, and what the clients logged in its exchanges."""

    up: int = 0
    down: int = 0
    log: StepLog = field(default_factory=StepLog)


@dataclass(frozen=True)
class DownloadBytes:
    """Bytes that one client receives: the shared parameters and statistics, and further state of the server by name."""

    model: int
    server_state: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes that a client receives before it trains, or before it passes over its samples for an exchange."""
        return self.model + sum(self.server_state.values())

    def for_exchange(self, exchange: Exchange) -> int:
        """Bytes that a client receives for an exchange: none if the client does not need the model for it."""
        return self.total if any(declared.passes for declared in exchange.sums) else 0


def download_bytes(setup: Setup, state: ServerState) -> DownloadBytes:
    """What a client receives while the server has this state."""
    return DownloadBytes(
        tree_bytes(tree_select(state.params | state.buffers, setup.problem.shared)),
        {name: tree_bytes(state.extra[name]) for name in setup.method.sent},
    )


def has_exchanges(setup: Setup, when: When) -> bool:
    """Whether the method has exchanges at this moment of a run."""
    return any(exchange.when == when for exchange in setup.method.exchanges)


def run_exchanges(
    setup: Setup, store: ClientStore, when: When, state: ServerState, cohort: IntArray, traffic: RoundTraffic
) -> ServerState:
    """Run the exchanges of this moment, add their bytes to `traffic`, and return the server's next state."""
    for exchange in setup.method.exchanges:
        if exchange.when != when:
            continue
        clients = cohort if exchange.clients == "cohort" else setup.eligible
        tasks = Cohort(setup.planner, max(state.round - 1, 0), tuple(int(client) for client in clients))
        traffic.down += len(clients) * download_bytes(setup, state).for_exchange(exchange)
        outcome = setup.engine.collect(state, tasks, store, exchange.sums)
        traffic.up += outcome.bytes_up
        traffic.log = traffic.log + outcome.log
        with timed("server"):
            state = exchange.server(state, outcome.sums)
    return state


def exchange_after_run(
    setup: Setup, store: ClientStore, state: ServerState, traffic: RoundTraffic
) -> tuple[ServerState, dict[str, Any]]:
    """Run the exchanges that end a run: the final state, and fields for the record of the last round.

    The names of these fields start with a prefix. All other fields of the record belong to the model before the
    exchanges, as in every other round.
    """
    if not has_exchanges(setup, "after_run"):
        return state, {}
    started = time.perf_counter()
    state = run_exchanges(setup, store, "after_run", state, setup.eligible, traffic)
    refuse_non_finite_server(state, setup.problem.shared)
    seconds = time.perf_counter() - started
    with timed("evaluate"):
        measured = evaluate(setup, state, store, setup.metrics, {}).record
    fields = {f"{protocols.CALIBRATED}{key.removeprefix('test_')}": value for key, value in measured.items()}
    return state, fields | {"exchange_seconds": seconds}


def choose_cohort(setup: Setup, store: ClientStore, state: ServerState, traffic: RoundTraffic) -> IntArray:
    """The clients of the next round in ascending id. What the choice asks of clients is added to `traffic`."""

    def ask_losses(clients: IntArray) -> NDArray[np.float64]:
        tasks = Cohort(setup.planner, state.round, tuple(int(client) for client in clients))
        traffic.down += len(clients) * download_bytes(setup, state).total
        outcome = setup.engine.collect(state, tasks, store, CLIENT_LOSSES)
        traffic.up += outcome.bytes_up
        traffic.log = traffic.log + outcome.log
        losses = np.full(len(clients), np.nan)
        answered = np.isin(clients, clients if outcome.contributors is None else outcome.contributors)
        losses[answered] = outcome.sums[CLIENT_LOSSES[0].name]["loss"].cpu().numpy()
        return losses

    return setup.cohorts.choose(state.round, ask_losses)
