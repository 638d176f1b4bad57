"""What clients send besides the sums of their training: for a method's exchanges, and for the choice of a cohort."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedblade.core.client_losses import CLIENT_LOSSES
from fedblade.core.cohort import Cohort
from fedblade.core.plan import IntArray
from fedblade.core.state import ClientStore, ServerState
from fedblade.core.timeline import timed
from fedblade.runs._setup import Setup
from fedblade.runs._traffic import RoundTraffic, download_bytes

When = Literal["before_run", "after_round", "after_run"]


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
