"""The exchanges of a method: sums that clients send besides those of their training."""

from typing import Literal

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
