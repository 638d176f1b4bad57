"""Who takes part in which round, who of them answers, and which choices of clients have no meaning."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedblade.config.run_config import UNIFORM, ChosenPart, RunConfig
from fedblade.config.schema import unseen_clients
from fedblade.core.errors import Misconfigured, Unsupported
from fedblade.core.method import Method
from fedblade.core.plan import IntArray
from fedblade.core.streams import Stream, Streams
from fedblade.participations import AskLosses, ParticipationView, chosen_clients
from fedblade.partitions import ClientTests


@dataclass(frozen=True)
class Cohorts:
    """The cohorts of a run, chosen by its `part` among the `eligible` clients; rounds count from 0.

    `sizes` gives the training samples of all clients. With `everyone` the method trains every client in every round.
    A choice that asks for losses needs the model of the round: `cohorts[round]` is for all other choices.
    """

    part: ChosenPart
    streams: Streams
    eligible: IntArray
    sizes: Callable[[], IntArray]
    per_round: int
    rounds: int
    dropout: float = 0.0
    everyone: bool = False

    @staticmethod
    def of(config: RunConfig, method: Method, eligible: IntArray, sizes: Callable[[], IntArray]) -> "Cohorts":
        """The cohorts of a run of this configuration."""
        federation = config.federation
        return Cohorts(
            config.participation,
            Streams(config.general.seed),
            eligible,
            sizes,
            min(federation.clients_per_round, len(eligible)),
            federation.rounds,
            federation.dropout,
            everyone=method.participation == "all",
        )

    def choose(self, round_: int, ask_losses: AskLosses | None = None) -> IntArray:
        """The clients of a round in ascending id."""
        if self.everyone:
            return self.eligible
        asks = {} if ask_losses is None else {"ask_losses": ask_losses}
        view = ParticipationView(
            round_,
            self.eligible,
            self.per_round,
            self.streams.numpy(Stream.SAMPLING, round_),
            lambda: self.sizes()[self.eligible],
            **asks,
        )
        return chosen_clients(self.part.name, self.part.make(view), view)

    def planned(self) -> Iterator[IntArray]:
        """The cohorts of all rounds, as far as they are known before the run: all losses count as equal."""
        return (self.choose(round_, lambda clients: np.zeros(len(clients))) for round_ in range(self.rounds))

    def always(self, clients: IntArray) -> "Cohorts":
        """These clients in every round, and all of them answer."""
        return replace(self, eligible=clients, dropout=0.0, everyone=True)

    def answering(self, round_: int, cohort: IntArray) -> IntArray:
        """The clients of a cohort that answer: each of them drops out with the probability `dropout`.

        If all would drop out, the client with the largest draw answers: a round without a reply would be no round, and
        a deployed run too asks again until some clients have answered.
        """
        if not self.dropout:
            return cohort
        draws = np.array([self.streams.numpy(Stream.DROPOUT, round_, int(client)).random() for client in cohort])
        stays = draws >= self.dropout
        stays[draws.argmax()] = True
        return cohort[stays]

    def __getitem__(self, round_: int) -> IntArray:
        return self.choose(round_)

    def __len__(self) -> int:
        return self.rounds

    def __iter__(self) -> Iterator[IntArray]:
        return (self.choose(round_) for round_ in range(self.rounds))


def hold_unseen(streams: Streams, share: float, clients: IntArray) -> IntArray:
    """The clients that never train: a share of the clients with data, at least one of them, drawn from the seed."""
    if not share:
        return clients[:0]
    number = unseen_clients(share, len(clients))
    if number >= len(clients):
        raise Misconfigured(
            f"federation.unseen = {share:g} of {len(clients)} clients leaves nobody to train. Lower it."
        )
    return np.sort(clients[streams.numpy(Stream.UNSEEN).choice(len(clients), number, replace=False)])


def check_participation(config: RunConfig, method: Method, clients: ClientTests) -> None:
    """Refuse a choice of clients that the method does not use, and unseen clients that have no model or no samples."""
    name = config.method.name
    if method.participation == "all" and config.participation.name != UNIFORM:
        raise Unsupported(
            f"method '{name}' trains every client in every round, so that participation = "
            f"'{config.participation.name}' has no effect. Leave participation out, or use another method."
        )
    if not config.federation.unseen:
        return
    if method.has_own_models or method.accuracy_of == "personal":
        raise Unsupported(
            f"federation.unseen = {config.federation.unseen:g} needs a model for clients that never train, and the "
            f"clients of method '{name}' predict with models of their own. Use a method with one global model, such as "
            f"fedavg, or fedavg-ft, which tunes it on each client."
        )
    if clients.is_shared:
        raise Unsupported(
            f"federation.unseen = {config.federation.unseen:g} compares clients on their own test samples, and with "
            f"dataset.test_split = '{config.dataset_settings.test_split}' all clients share one test set. Set "
            f"test_split=matched (test samples in the mix of each client's labels) or test_split=holdout."
        )
