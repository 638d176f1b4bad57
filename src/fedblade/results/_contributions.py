"""What each client contributed to a run: in how many rounds, and how long its updates were."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.results._record import Round, RunRecord, finite_number


@dataclass(frozen=True)
class Contribution:
    """One client: in how many rounds it was asked, in how many its reply was added, and the lengths of its updates."""

    client: int
    asked: int
    added: int
    lengths: tuple[float, ...] = ()

    @property
    def missing(self) -> int:
        """In how many of the rounds that asked it the client is missing."""
        return self.asked - self.added


def client_name(run: RunRecord, client: int) -> str:
    """The name of a client, or its number."""
    names = () if run.partition is None else run.partition.client_names or ()
    return names[client] if client < len(names) else str(client)


def count_contributions(rounds: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[Contribution]:
    """Contributions in ascending id, from the clients and the contributors of each round."""
    asked, added = Counter[int](), Counter[int]()
    for clients, contributors in rounds:
        asked.update(clients)
        added.update(set(clients).intersection(contributors))
    return [Contribution(client, asked[client], added[client]) for client in sorted(asked)]


def contributions(run: RunRecord) -> list[Contribution]:
    """The contributions of all clients of a run on nodes; empty for a run on one machine.

    On one machine clients are missing only where `federation.dropout` simulates it. Rounds of earlier versions do not
    say who contributed, and are left out.
    """
    federation = run.config.get("federation")
    if isinstance(federation, Mapping) and federation.get("dropout"):
        return []
    known = ((round_.clients, round_.contributors) for round_ in run.history if round_.contributors is not None)
    rounds = [(clients, contributors) for clients, contributors in known if contributors is not None]
    counted = count_contributions(rounds)
    if not run.updates and not any(client.missing for client in counted):
        return []
    lengths: dict[int, list[float]] = {}
    for _, by_client in sorted(run.updates.items()):
        for client, length in by_client.items():
            lengths.setdefault(client, []).append(length)
    return [
        Contribution(client.client, client.asked, client.added, tuple(lengths.get(client.client, ())))
        for client in counted
    ]


def participation(run: RunRecord) -> list[Contribution]:
    """How often each client was chosen and how often its update was added, in any run.

    Where a round of an earlier version does not say who contributed, all its clients count.
    """
    return count_contributions(
        (round_.clients, round_.clients if round_.contributors is None else round_.contributors)
        for round_ in run.history
    )


def read_updates(events: Iterable[Mapping[str, Any]], rounds: Iterable[Round]) -> dict[int, dict[int, float]]:
    """The lengths of updates by round and client, from the events of a run and for the rounds in its history.

    A round that was done again after a stop has several events. The last one counts.
    """
    known, updates = {round_.number for round_ in rounds}, dict[int, dict[int, float]]()
    for event in events:
        lengths, number = event.get("lengths"), event.get("round")
        if event.get("event") == "updates" and event.get("kind") == "train" and isinstance(lengths, Mapping):
            found = {int(key): finite_number(length) for key, length in lengths.items() if str(key).isdecimal()}
            if isinstance(number, int) and number in known:
                updates[number] = {client: length for client, length in found.items() if length is not None}
    return updates
