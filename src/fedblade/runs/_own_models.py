"""What a run keeps for the clients' own models, and their measurement after the last round."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.state import ClientStore, ServerState
from fedblade.results import CLIENTS, RunDirectory
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._evaluation import Evaluation, measured_state
from fedblade.runs._personal import measure_clients, stages_after_run
from fedblade.runs._setup import Setup

_FACT = "best_accuracies"


@dataclass(frozen=True)
class Bests:
    """The highest accuracy of each client over the evaluated rounds, on its own samples and on everyone's."""

    own: Mapping[int, float] = field(default_factory=dict)
    general: Mapping[int, float] = field(default_factory=dict)

    @staticmethod
    def read(stored: Mapping[str, Mapping[str, float]]) -> "Bests":
        """What `stored` gave, after it was written as JSON."""
        own, general = ({int(client): value for client, value in stored[part].items()} for part in ("own", "general"))
        return Bests(own, general)

    def stored(self) -> dict[str, dict[str, float]]:
        """As JSON can hold it."""
        parts = {"own": self.own, "general": self.general}
        return {name: {str(client): value for client, value in part.items()} for name, part in parts.items()}

    def after(self, found: Evaluation) -> "Bests":
        """The same with one more evaluated round."""
        return Bests(_higher(self.own, found.own), _higher(self.general, found.general))

    def row(self, client: int) -> dict[str, Any]:
        """Fields of a client at the end of the run; it has no accuracy of its own without test samples."""
        general = {"best_general_accuracy": self.general[client]} if client in self.general else {}
        return {"best_accuracy": self.own.get(client), **general}


class OwnModels:
    """Own models of a run: the best so far where the protocol needs it, and `rows`, one per client that was measured.

    `gapa` tunes the best global model, or takes each client's best accuracies where clients have models of their own.
    Exchanges at the end of the run leave one model that no round knows: there the final model is the best.
    """

    def __init__(self, setup: Setup, directory: RunDirectory | None, store: ClientStore) -> None:
        self._setup, self._directory, self._store = setup, directory, store
        self._saved = None if directory is None else Checkpoints(directory)
        method, protocol = setup.method, setup.config.evaluation.protocol
        self._stages = stages_after_run(method, protocol)
        by_round = protocol == "gapa" and all(exchange.when != "after_run" for exchange in method.exchanges)
        self._keeps_model = by_round and not method.has_own_models
        self._keeps_accuracies = by_round and method.has_own_models and not self._stages
        self._bests = Bests()
        self.best: tuple[ServerState, float] | None = None
        self.rows: list[dict[str, Any]] = []

    @property
    def notes(self) -> list[str]:
        """What a user should know of own models before the run: in a large population not all are measured."""
        some, everyone = len(self._setup.measured), len(self._setup.eligible)
        if some == everyone or (self._stages is None and self._setup.method.accuracy_of != "personal"):
            return []
        return [f"the clients' own models are measured on {some:,} of {everyone:,} clients, chosen at random"]

    def facts(self) -> dict[str, Any]:
        """What the checkpoint of a round must hold of the rounds so far."""
        return {_FACT: self._bests.stored()} if self._keeps_accuracies else {}

    def restore(self, facts: Mapping[str, Any], history: list[dict[str, Any]]) -> None:
        """Go on from a checkpoint with these facts."""
        if self._saved is None or not any("test_accuracy" in row for row in history):
            return
        self.best = self._saved.best(self._setup.start) if self._keeps_model else None
        if (self._keeps_model and self.best is None) or (self._keeps_accuracies and _FACT not in facts):
            raise CorruptFile(
                f"what was best so far is gone from '{self._saved.folder}'. "
                f"Put the best model and the checkpoint back as they were, or start a new run elsewhere."
            )
        if self._keeps_accuracies:
            self._bests = Bests.read(facts[_FACT])

    def see(self, state: ServerState, found: Evaluation) -> None:
        """Keep of a complete round what is better than all before it, if it will be needed."""
        if self._keeps_accuracies:
            self._bests = self._bests.after(found)
        accuracy = found.row["test_accuracy"]
        if self._keeps_model and (self.best is None or accuracy > self.best[1]):
            self.best = (measured_state(self._setup, state), accuracy)
            if self._saved is not None:
                self._saved.save_best(*self.best)

    def measure(self, final: ServerState, told: Callable[[int, int], None]) -> None:
        """Tune and measure the models of the clients for which that was not done before; `final` is the run's model."""
        if self._stages is None:
            return
        state = final if self.best is None else self.best[0]
        if self._directory is not None:
            self.rows = self._directory.rows(CLIENTS)
            self._directory.rewrite(CLIENTS, self.rows)
        done = {int(row["client"]) for row in self.rows}
        for row in measure_clients(self._setup, state, self._store, self._stages, done):
            whole = row | (self._bests.row(row["client"]) if self._keeps_accuracies else {})
            if self._directory is not None:
                self._directory.append(CLIENTS, whole)
            self.rows.append(whole)
            told(len(self.rows), len(self._setup.measured))


def _higher(old: Mapping[int, float], new: Mapping[int, float]) -> dict[int, float]:
    return {client: max(value, old.get(client, value)) for client, value in new.items()}
