"""What a run keeps for the clients' personal models, and their measurement after the last round."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.listener import RoundRecord
from fedblade.core.state import ClientStore, ServerState
from fedblade.results import CLIENTS, RunDirectory
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._client_records import ClientRecord, global_records
from fedblade.runs._evaluation import Evaluation, evaluated_state
from fedblade.runs._exchanges import has_exchanges
from fedblade.runs._setup import Setup
from fedblade.runs._tuning import CHUNK, measure_clients, tuning_stages

_FACT = "best_accuracies"


@dataclass(frozen=True)
class BestAccuracies:
    """By client, the highest accuracy over the evaluated rounds: on the client's test samples and on the test set."""

    personal: Mapping[int, float] = field(default_factory=dict)
    general: Mapping[int, float] = field(default_factory=dict)

    @staticmethod
    def from_json(stored: Mapping[str, Mapping[str, float]]) -> "BestAccuracies":
        """Read what `to_json` gave."""
        personal, general = (
            {int(client): accuracy for client, accuracy in stored[part].items()} for part in ("own", "general")
        )
        return BestAccuracies(personal, general)

    def to_json(self) -> dict[str, dict[str, float]]:
        """The accuracies as JSON can hold them: keys are strings."""
        parts = {"own": self.personal, "general": self.general}
        return {name: {str(client): accuracy for client, accuracy in part.items()} for name, part in parts.items()}

    def updated(self, evaluation: Evaluation) -> "BestAccuracies":
        """The highest accuracies after one more evaluated round."""
        return BestAccuracies(_higher(self.personal, evaluation.personal), _higher(self.general, evaluation.general))

    def fields(self, client: int) -> ClientRecord:
        """Fields for the record of a client. Without test samples, `best_accuracy` is None."""
        general = {"best_general_accuracy": self.general[client]} if client in self.general else {}
        return {"best_accuracy": self.personal.get(client), **general}


class PersonalModels:
    """The personal models of a run. `records` has one record per client whose model was measured after the last round.

    The protocol `gapa` tunes the best global model of all rounds. If clients have personal models from the start, it
    takes every client's best accuracy instead. If a method ends the run with exchanges, the final model is used.
    """

    def __init__(self, setup: Setup, directory: RunDirectory | None, store: ClientStore) -> None:
        self._setup, self._directory, self._store = setup, directory, store
        self._checkpoints = None if directory is None else Checkpoints(directory)
        method, protocol = setup.method, setup.config.evaluation.protocol
        self._stages = tuning_stages(method, protocol)
        uses_best_round = protocol == "gapa" and not has_exchanges(setup, "after_run")
        self._keeps_model = uses_best_round and not method.has_own_models
        self._keeps_accuracies = uses_best_round and method.has_own_models and not self._stages
        self._best_accuracies = BestAccuracies()
        self.best: tuple[ServerState, float] | None = None
        self.records: list[ClientRecord] = []

    def facts(self) -> dict[str, Any]:
        """What a checkpoint must hold besides the server's state."""
        return {_FACT: self._best_accuracies.to_json()} if self._keeps_accuracies else {}

    def restore(self, state: ServerState, facts: Mapping[str, Any], history: list[RoundRecord]) -> None:
        """Go on from a checkpoint with this state and these facts."""
        accuracies = {
            record["round"]: record["test_accuracy"] for record in history if record.get("test_accuracy") is not None
        }
        if self._checkpoints is None or not accuracies:
            return
        if self._keeps_model:
            self.best = self._restored_best(self._checkpoints, state, accuracies)
        if self._keeps_accuracies:
            if _FACT not in facts:
                raise CorruptFile(
                    f"the best accuracies so far are gone from '{self._checkpoints.folder}'. Put the checkpoint back "
                    f"as it was, or start again from round 0 with --restart."
                )
            self._best_accuracies = BestAccuracies.from_json(facts[_FACT])

    def _restored_best(
        self, checkpoints: Checkpoints, state: ServerState, accuracies: Mapping[int, float]
    ) -> tuple[ServerState, float]:
        """The best model so far and its accuracy. It may be of a later round than the history, which is done again.

        The model of another round than the best one is not used. If the best round is that of the checkpoint, its
        model is the best one.
        """
        best_round = max(accuracies, key=lambda round_: (accuracies[round_], -round_))
        reason = "it is gone"
        try:
            best = checkpoints.best(self._setup.start)
            if best is not None and accuracies.get(best[0].round, best[1]) == best[1] >= accuracies[best_round]:
                return best
            if best is not None:
                reason = f"it is another one, of round {best[0].round}"
        except (CorruptFile, KeyError) as error:
            reason = str(error)
        if best_round != state.round:
            raise CorruptFile(
                f"the best model so far, that of round {best_round}, cannot be read from '{checkpoints.folder}': "
                f"{reason}. Put it back as it was, or start again from round 0 with --restart."
            )
        rebuilt = evaluated_state(self._setup, state), accuracies[best_round]
        checkpoints.save_best(*rebuilt)
        return rebuilt

    def keep_best(self, state: ServerState, evaluation: Evaluation) -> None:
        """Keep the model or the accuracies of an evaluated round if they are the best so far and will be needed."""
        if self._keeps_accuracies:
            self._best_accuracies = self._best_accuracies.updated(evaluation)
        accuracy = evaluation.record["test_accuracy"]
        if self._keeps_model and (self.best is None or accuracy > self.best[1]):
            self.best = (evaluated_state(self._setup, state), accuracy)
            if self._checkpoints is not None:
                self._checkpoints.save_best(*self.best)

    def measure(self, final: ServerState, on_personal_model: Callable[[int, int], None]) -> None:
        """Tune and measure the personal models that are not yet measured. `final` is the model after the last round.

        Of a method without personal models, the global model is measured for each client.
        """
        if self._stages is None:
            self.records = global_records(self._setup, final)
            if self._directory is not None and self.records:
                self._directory.rewrite(CLIENTS, self.records)
            return
        state = final if self.best is None else self.best[0]
        if self._directory is not None:
            stored, _ = self._directory.recover(CLIENTS)
            self.records = self._records_in_order(stored)
            self._directory.rewrite(CLIENTS, self.records)
        done, total = {int(record["client"]) for record in self.records}, len(self._setup.evaluated_clients)
        if len(done) < total:
            on_personal_model(len(done), total)
        for record in measure_clients(self._setup, state, self._store, self._stages, done):
            if self._keeps_accuracies:
                record |= self._best_accuracies.fields(record["client"])
            if self._directory is not None:
                # One wait for the disk per chunk: models that a power cut loses are measured again.
                is_last = (len(self.records) + 1) % CHUNK == 0 or len(self.records) + 1 == total
                self._directory.append(CLIENTS, record, sync=is_last)
            self.records.append(record)
            on_personal_model(len(self.records), total)

    def _records_in_order(self, stored: list[ClientRecord]) -> list[ClientRecord]:
        """The stored records up to the first missing client. Later clients are measured again, to keep the order."""
        pairs = zip(stored, self._setup.evaluated_clients, strict=False)
        return [record for record, _ in takewhile(lambda pair: int(pair[0]["client"]) == int(pair[1]), pairs)]


def _higher(old: Mapping[int, float], new: Mapping[int, float]) -> dict[int, float]:
    return {client: max(accuracy, old.get(client, accuracy)) for client, accuracy in new.items()}
