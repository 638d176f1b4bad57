"""What a run left on disk, as plain values with the accuracies a report needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from fedblade import protocols
from fedblade.core.fields import Field
from fedblade.hardness import Hardness, measure
from fedblade.results._fields import all_fields

STATES = frozenset({"count_clients_without_test_samples", "count_dead_features", "count_idle_clients"})
"""Counters of how things are and not of what happened: every round finds the same again, and a total says nothing."""
IN_PROGRESS = "in progress"


@dataclass(frozen=True)
class Round:
    """One line of `history.jsonl`; `fields` has every number in it by its key, diagnostics included."""

    number: int
    accuracy: float | None
    loss: float | None
    seconds: float | None
    fields: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Partition:
    """Samples per client and class, `counts [clients][classes]`."""

    digest: str
    counts: tuple[tuple[float, ...], ...]
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class RunRecord:
    """One run as it stands on disk.

    `diagnostics` has the arrays of `diagnostics.jsonl` by round and name (nested lists, None where undefined),
    `clients` the lines of `clients.jsonl`. `left_out` names what the files hold that cannot be read. `pictures` says
    what the samples were read from; it is empty for runs that did not store it. `stored_hardness` is what the run has
    measured of its split, `stored_fields` how it has described its numbers; runs of earlier versions have neither.
    """

    path: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: tuple[Round, ...]
    partition: Partition | None
    diagnostics: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    clients: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[str, ...] = ()
    pictures: str = ""
    stored_hardness: Hardness | None = None
    stored_fields: Mapping[str, Field] | None = None

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """What the run measures, by the name of the number, in reading order.

        As the run has described it; runs of earlier versions get the built-in descriptions. A number that nobody
        describes has a field with its name as label.
        """
        return all_fields(self.stored_fields, (name for round_ in self.history for name in round_.fields))

    @property
    def hardness(self) -> Hardness | None:
        """How hard the split is: as stored, else measured for the run's own cohorts if the counts are there."""
        if self.stored_hardness is not None or self.partition is None:
            return self.stored_hardness
        cohort = number(self._setting("federation", "clients_per_round"))
        samples = sum(map(sum, self.partition.counts))
        if cohort is None or cohort < 1 or not 0 < samples < math.inf:
            return None
        return _measured(self.partition.counts, int(cohort))

    @property
    def status(self) -> str:
        """`finished`, `interrupted`, `failed`, or `in progress` while there is no summary."""
        return str(self.summary.get("status") or "unknown") if self.summary else IN_PROGRESS

    @property
    def finished(self) -> bool:
        """Whether the run came to its planned end."""
        return self.status == "finished"

    @property
    def seed(self) -> int | None:
        """Base seed of the run."""
        seed = self.summary.get("seed", self.config.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def rounds_done(self) -> int:
        """Rounds completed so far."""
        if self.history:
            return self.history[-1].number
        return int(number(self.summary.get("rounds")) or 0)

    @property
    def rounds_planned(self) -> int | None:
        """Rounds asked for in the configuration."""
        federation = self.config.get("federation")
        planned = number(federation.get("rounds")) if isinstance(federation, Mapping) else None
        return None if planned is None else int(planned)

    @property
    def accuracy_of(self) -> str:
        """Whose accuracy `test_accuracy` is: `global` or `personal`."""
        return str(self.summary.get("accuracy_of") or "global")

    @property
    def flags(self) -> tuple[str, ...]:
        """What the run warns of itself, such as rounds in which no client made a step."""
        stored = self.summary.get("flags")
        return tuple(map(str, stored)) if isinstance(stored, list) else ()

    @property
    def calibrated(self) -> bool:
        """Whether the method calibrated its model at the end of the run, after the last round."""
        return self.finished and self.summary.get("calibrated") is True

    @property
    def ranked_accuracy(self) -> float | None:
        """What runs are ranked by: the mean over the last ten rounds, or the calibrated model, which is in no round."""
        return self.final_accuracy if self.calibrated else self.last10_accuracy

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy of the model the run ended with, in percent."""
        return self._settled("final_accuracy", protocols.final(self.evaluated()))

    @property
    def personal_accuracy(self) -> float | None:
        """Mean accuracy of the clients' own models, where the run measured them; `tests_apart` says on what."""
        return number(self.summary.get("personal_accuracy"))

    @property
    def tests_apart(self) -> bool:
        """Whether each client's own model is measured on samples of that client, and not all on the same test set."""
        return self._setting("evaluation", "on") == "validation" or self._setting("dataset", "test_split") not in (
            None,
            "global",
        )

    @property
    def last10_accuracy(self) -> float | None:
        """Mean test accuracy over the last ten evaluated rounds, or as many as there are, before any calibration."""
        return self._settled("last10_accuracy", protocols.last_mean(self.evaluated(), 10))

    @property
    def rounds_evaluated(self) -> int:
        """Rounds with a test accuracy."""
        return len(protocols.accuracies(self.evaluated()))

    @property
    def best_accuracy(self) -> float | None:
        """Highest test accuracy over rounds; optimistic, because it is chosen on test data."""
        return self._settled("best_accuracy", protocols.best(self.evaluated()))

    @property
    def seconds_per_round(self) -> float | None:
        """Mean seconds of training and aggregation per round."""
        seen = [r.seconds for r in self.history if r.seconds is not None]
        return sum(seen) / len(seen) if seen else self.per_round("seconds")

    def part(self, kind: str) -> str:
        """Name of the method, dataset, partition or model the run used, `?` when it says nowhere."""
        section = self.summary.get(kind, self.config.get(kind))
        name = section.get("name") if isinstance(section, Mapping) else section
        return str(name) if name else "?"

    def per_round(self, key: str) -> float | None:
        """A total of the summary divided by the number of rounds."""
        total = number(self.summary.get(key))
        return total / self.rounds_done if total is not None and self.rounds_done else None

    def rounds_to(self, threshold: float) -> int | None:
        """First round, counted from 1, whose test accuracy reaches `threshold` percent."""
        return protocols.rounds_to(self.evaluated(), threshold)

    def evaluated(self) -> protocols.History:
        """Rounds and accuracies as the protocols read them."""
        return [{"round": r.number, "test_accuracy": r.accuracy} for r in self.history]

    def _setting(self, section: str, key: str) -> object:
        table = self.config.get(section)
        return table.get(key) if isinstance(table, Mapping) else None

    def _settled(self, key: str, from_history: float | None) -> float | None:
        """The summary's value of a finished run; otherwise the history is fresher."""
        stored = number(self.summary.get(key))
        first, second = (stored, from_history) if self.finished else (from_history, stored)
        return second if first is None else first


@lru_cache(maxsize=64)
def _measured(counts: tuple[tuple[float, ...], ...], cohort: int) -> Hardness:
    """The hardness of a table that many runs of a study may share."""
    return measure(counts, cohort)


def number(value: object) -> float | None:
    """A finite float, or None for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
