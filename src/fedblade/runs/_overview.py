"""A run and its rounds in a few words, and the time that is left, for listeners."""

import time

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RoundRecord, RunOverview
from fedblade.core.words import plural
from fedblade.runs._setup import Setup


def overview(setup: Setup) -> RunOverview:
    """The overview of a run that is set up on this machine."""
    everyone = setup.method.participation == "all"
    cohort = len(setup.eligible) if everyone else setup.config.federation.clients_per_round
    where = f"engine {setup.engine.name} on {setup.test_order.device}"
    return overview_of(setup.config, setup.dataset.name, where, cohort)


def overview_of(config: RunConfig, dataset: str, where: str, clients_per_round: int) -> RunOverview:
    """The overview of any run. `where` says what computes the run, such as `engine stacked on cpu`."""
    federation, local = config.federation, config.local
    length = plural(local.epochs, "local epoch") if local.steps == "none" else plural(local.steps, "local step")
    description = (
        f"{config.method.name} on {dataset}: {config.model.name}, {config.partition.name} over "
        f"{plural(federation.num_clients, 'client')}, {federation.clients_per_round} per round, "
        f"{plural(federation.rounds, 'round')} of {length}, seed {config.general.seed}, {where}"
    )
    return RunOverview(description, config.method.name, federation.rounds, clients_per_round)


def round_facts(record: RoundRecord) -> str:
    """The accuracy after a round, if it was measured, and the seconds of the whole round, evaluation included."""
    seconds = f"{record.get('wall_seconds', record['seconds']):.2f} s/round"
    accuracy = record.get("test_accuracy")
    return seconds if accuracy is None else f"{accuracy:.2f} %  {seconds}"


class Pace:
    """The time that is left, from the mean time of the rounds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._done = 0

    def start(self) -> None:
        """The first round starts now."""
        self._started, self._done = time.monotonic(), 0

    def left(self, round_: int, rounds: int) -> float:
        """One more round is done, number `round_` of `rounds`: the seconds that are left."""
        self._done += 1
        return (time.monotonic() - self._started) / self._done * (rounds - round_)
