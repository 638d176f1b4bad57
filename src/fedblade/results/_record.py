"""A run as it is on disk: plain values, and the accuracies that tables and pages show."""

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

STATE_COUNTERS = frozenset({"count_clients_without_test_samples", "count_dead_features", "count_idle_clients"})
"""Counters of a state, not of events: they count the same things again in every round, so that a total says nothing."""
IN_PROGRESS = "in progress"


@dataclass(frozen=True)
class Round:
    """One line of `history.jsonl`; `numbers` has all its numbers by their names, those of metrics included.

    `contributors` are the `clients` whose replies were added; None in runs of earlier versions. `claimed` says whose
    accuracies (`global`, `personal`) nodes have measured by themselves.
    """

    number: int
    accuracy: float | None
    loss: float | None
    seconds: float | None
    numbers: Mapping[str, float] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    contributors: tuple[int, ...] | None = None
    claimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """The numbers of samples per client and class, `counts [clients][classes]`; classes and clients may have names."""

    digest: str
    counts: tuple[tuple[float, ...], ...]
    class_names: tuple[str, ...] | None
    client_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RunRecord:
    """One run as it is on disk.

    `diagnostics` has the arrays of `diagnostics.jsonl` by round and name (nested lists, None where undefined),
    `clients` the lines of `clients.jsonl`. `left_out` names the parts of the files that cannot be read, `changed` the
    files that were changed after the run had finished, `edited` the configuration file if it is not that of the run.
    `pictures` says what the samples were read from; it is empty for runs that did not store it. `stored_hardness` is
    the hardness of the split that the run has measured, and `stored_fields` are the descriptions of its numbers; runs
    of earlier versions have neither. `updates` are the lengths of updates of a run on nodes, by round and client.
    """

    path: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: tuple[Round, ...]
    partition: Partition | None
    diagnostics: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    clients: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    pictures: str = ""
    stored_hardness: Hardness | None = None
    stored_fields: Mapping[str, Field] | None = None
    updates: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The descriptions of the numbers that the run measures, by name, in reading order.

        The run has stored them; for runs of earlier versions the built-in descriptions are used. A number without a
        description has a field with its name as label.
        """
        return all_fields(self.stored_fields, (name for round_ in self.history for name in round_.numbers))

    @property
    def hardness(self) -> Hardness | None:
        """How hard the split is: as stored, or measured here for the run's cohorts if the counts are stored."""
        if self.stored_hardness is not None or self.partition is None:
            return self.stored_hardness
        cohort = finite_number(self._setting("federation", "clients_per_round"))
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
        """The seed of the run."""
        seed = self.summary.get("seed", self.config.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def rounds_done(self) -> int:
        """The number of rounds completed so far."""
        if self.history:
            return self.history[-1].number
        return int(finite_number(self.summary.get("rounds")) or 0)

    @property
    def rounds_planned(self) -> int | None:
        """The number of rounds in the configuration."""
        planned = finite_number(self._setting("federation", "rounds"))
        return None if planned is None else int(planned)

    @property
    def accuracy_of(self) -> str:
        """Whose accuracy `test_accuracy` is: `global` or `personal`."""
        return str(self.summary.get("accuracy_of") or "global")

    @property
    def flags(self) -> tuple[str, ...]:
        """The warnings in the summary, such as rounds in which no client made a step."""
        stored = self.summary.get("flags")
        return tuple(map(str, stored)) if isinstance(stored, list) else ()

    @property
    def claimed(self) -> bool:
        """Whether nodes have measured the test accuracy by themselves, so that nobody has checked it."""
        return self._is_claimed(self.accuracy_of)

    @property
    def personal_claimed(self) -> bool:
        """Whether nodes have measured the accuracy of the personal models by themselves."""
        return self._is_claimed("personal")

    def _is_claimed(self, whose: str) -> bool:
        stored = self.summary.get("claimed")
        in_summary = isinstance(stored, list) and whose in stored
        return in_summary or any(whose in round_.claimed for round_ in self.history)

    @property
    def calibrated(self) -> bool:
        """Whether the method calibrated its model at the end of the run, after the last round."""
        return self.finished and self.summary.get("calibrated") is True

    @property
    def ranked_accuracy(self) -> float | None:
        """The accuracy that runs are ranked by.

        It is the mean over the last ten rounds, or that of the calibrated model, which no round has measured.
        """
        return self.final_accuracy if self.calibrated else self.last10_accuracy

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy of the model the run ended with, in percent."""
        return self._summary_or_history("final_accuracy", protocols.final(self.evaluated()))

    @property
    def personal_accuracy(self) -> float | None:
        """The mean accuracy of the personal models, if the run measured it; `tests_apart` says on what samples."""
        return finite_number(self.summary.get("personal_accuracy"))

    @property
    def tests_apart(self) -> bool:
        """Whether personal models are measured on test samples of their clients, and not on the whole test set."""
        return self.on_validation or self._setting("dataset", "test_split") not in (None, "global")

    @property
    def on_validation(self) -> bool:
        """Whether accuracies were measured on samples held out of the training data, and not on the test set."""
        return self._setting("evaluation", "on") == "validation"

    @property
    def last10_accuracy(self) -> float | None:
        """The mean test accuracy over the last ten evaluated rounds, or over all if there are fewer.

        A calibration at the end of the run does not count.
        """
        return self._summary_or_history("last10_accuracy", protocols.last_mean(self.evaluated(), 10))

    @property
    def rounds_evaluated(self) -> int:
        """The number of rounds with a test accuracy."""
        return len(protocols.accuracies(self.evaluated()))

    @property
    def best_accuracy(self) -> float | None:
        """The highest test accuracy over rounds; it is optimistic, because it is chosen on test data."""
        return self._summary_or_history("best_accuracy", protocols.best(self.evaluated()))

    @property
    def seconds_per_round(self) -> float | None:
        """The mean seconds of training and aggregation per round."""
        seconds = [round_.seconds for round_ in self.history if round_.seconds is not None]
        return sum(seconds) / len(seconds) if seconds else self.per_round("seconds")

    def part(self, kind: str) -> str:
        """The name of the run's method, dataset, partition or model, `?` where no file says it."""
        section = self.summary.get(kind, self.config.get(kind))
        name = section.get("name") if isinstance(section, Mapping) else section
        return str(name) if name else "?"

    def per_round(self, key: str) -> float | None:
        """A total in the summary, divided by the number of rounds."""
        total = finite_number(self.summary.get(key))
        return total / self.rounds_done if total is not None and self.rounds_done else None

    def rounds_to(self, threshold: float) -> int | None:
        """The first round, counted from 1, whose test accuracy reaches `threshold` percent."""
        return protocols.rounds_to(self.evaluated(), threshold)

    def evaluated(self) -> protocols.History:
        """The rounds and their accuracies in the form that the protocols read."""
        return [{"round": round_.number, "test_accuracy": round_.accuracy} for round_ in self.history]

    def _setting(self, section: str, key: str) -> object:
        table = self.config.get(section)
        return table.get(key) if isinstance(table, Mapping) else None

    def _summary_or_history(self, key: str, from_history: float | None) -> float | None:
        """A number of the summary if the run has finished; otherwise the one from the history, which is newer."""
        stored = finite_number(self.summary.get(key))
        first, second = (stored, from_history) if self.finished else (from_history, stored)
        return second if first is None else first


@lru_cache(maxsize=64)
def _measured(counts: tuple[tuple[float, ...], ...], cohort: int) -> Hardness:
    """The hardness of a split; many runs of a study share one, so that it is kept."""
    return measure(counts, cohort)


def finite_number(value: object) -> float | None:
    """The value as a finite float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
