"""How hard a split makes training: how much a client and a cohort see of the classes, in numbers and in a sentence.

This module needs only the table of samples per client and class and does not import torch, so that a report can measure
old runs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured
from fedblade.core.streams import Stream, Streams

Floats: TypeAlias = NDArray[np.float64]

OTHERS = 0.5
"""A split is mild if a client sees in effect one class and at least this share of the other classes."""
LACKING = 0.05
"""A split is hard if an average cohort lacks at least this share of the classes."""
LACKS = (
    "A cohort lacks a class that makes up less than 1 % of the cohort's samples; for a class with less than 10 % of "
    "all data, the border is a tenth of its share of all data."
)
"""When a cohort lacks a class, in words."""
_COHORTS = 1000
_SCARCE, _SCARCE_RELATIVE = 0.01, 0.1
_LARGEST = 2.0**53
_VERDICTS = {
    "mild": "Mild: clients see much the same classes, so their models can be averaged with little loss.",
    "moderate": "Moderate: local training pulls clients apart, but a round sees nearly all classes.",
    "hard": "Hard: many rounds train without some of the classes, and the model unlearns those classes there.",
}


@dataclass(frozen=True)
class Hardness:
    """How much of `classes` the `clients` of a `population` see, alone and in cohorts of `cohort` clients.

    - `effective_classes`: exp(entropy of a client's labels), the mean over clients weighted by their samples.
    - `largest_share`: share of all samples that belong to the most frequent class of their client.
    - `effective_clients`: exp(entropy over clients of a class' samples), the mean over classes.
    - `missing_classes`: classes that a cohort lacks, the mean over cohorts. A cohort lacks a class that makes up less
      than 1 % of the cohort's samples. For a class with less than 10 % of all data, the border is a tenth of its share
      of all data, because rare classes could be below 1 % in the most even split.
    - `cohort_distance`: total variation between the labels of a cohort and those of all clients, the mean over cohorts.

    Means over cohorts are taken over 1000 uniform draws, always the same ones, from the clients that hold samples.
    `clients` is below `population` if only the first clients of a large population were measured. Classes that no
    client holds are ignored: they are not part of `classes`, and no cohort lacks them.
    """

    cohort: int
    clients: int
    population: int
    classes: int
    effective_classes: float
    largest_share: float
    effective_clients: float
    missing_classes: float
    cohort_distance: float

    @property
    def level(self) -> str:
        """`mild`, `moderate` or `hard`.

        Hard means that an average cohort lacks 5 % of the classes or more: of ten classes one is absent in every
        second round, and each local step of such a round lowers the scores of the absent class. On CIFAR-10 with
        alpha=0.05 and cohorts of 20, FedAvg ended at 28 % on a class-wise split (`dirichlet`, cohorts lack 0.81 of ten
        classes) and at 49 % on a client-wise split (cohorts of such splits lack 0.12 to 0.24). Each number is one run
        of 200 rounds, and the sizes of clients differ as well. So there is a border between the two, but its exact
        value is a choice.

        Mild means that a cohort lacks less than that, and that a client sees in effect one class and at least half of
        the others, which is 5.5 of ten. One class is counted separately because every client sees one. On the same
        data, clients of Dirichlet splits see 4.8 to 5.6 classes with alpha=0.5, on both sides of the border, and 6.3 to
        7.0 with alpha=1. Published accuracies of FedAvg there are 86 % with alpha=0.5 and 55 % with alpha=0.05.
        """
        if self.missing_classes >= LACKING * self.classes:
            return "hard"
        return "mild" if self.effective_classes - 1 >= OTHERS * (self.classes - 1) else "moderate"

    def sentence(self) -> str:
        """What the numbers mean for training."""
        scope = "" if self.clients == self.population else f"Of the first {self.clients} of {self.population} clients: "
        moved = f"{100 * self.cohort_distance:.0f} %"
        return (
            f"{scope}{'a' if scope else 'A'} client sees {self.effective_classes:.1f} of {self.classes} classes in "
            f"effect. A cohort of {self.cohort} lacks {self.missing_classes:.2f} of {self.classes} classes on average, "
            f"and {moved} of its samples would have to change class for it to match all data. "
            f"{_VERDICTS[self.level]}"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Pairs of a description and the number as text."""
        return [
            ("effective classes per client", f"{self.effective_classes:.2f} of {self.classes}"),
            ("samples in the largest class of their client", f"{100 * self.largest_share:.0f} %"),
            ("effective clients per class", f"{self.effective_clients:.1f} of {self.clients}"),
            (f"classes that a cohort of {self.cohort} lacks", f"{self.missing_classes:.2f} of {self.classes}"),
            ("distance of a cohort's labels from all data", f"{self.cohort_distance:.2f}"),
        ]

    def stored(self) -> dict[str, Any]:
        """The numbers as they are written to a file."""
        return asdict(self)

    @staticmethod
    def restored(stored: object) -> "Hardness | None":
        """The numbers read from a file, or None if a number is missing or unusable."""
        if not isinstance(stored, Mapping):
            return None
        values: dict[str, Any] = {field.name: stored.get(field.name) for field in fields(Hardness)}
        if not all(isinstance(value, int | float) and abs(value) < _LARGEST for value in values.values()):
            return None
        return Hardness(**values)


def measure(counts: Any, cohort: int, population: int | None = None) -> Hardness:
    """Measure the table `counts` [K, C] of samples per client and class for cohorts of `cohort` clients.

    `population` is the number of all clients if the table has only the first of them. A cohort is at most as large as
    the number of clients with samples.
    """
    given = np.asarray(counts)
    table = given[given.sum(1) > 0] if given.ndim == 2 else given
    if table.ndim != 2 or len(table) == 0 or cohort < 1:
        raise Misconfigured(
            f"a table of shape {list(given.shape)} and cohorts of {cohort} cannot be measured. "
            f"Give samples per client and class, at least one sample, and a cohort of at least 1."
        )
    size, whole = min(cohort, len(table)), table.sum(0)
    weighted = table * np.log(np.maximum(table, 1))
    per_client, per_class = _perplexity(weighted, 1, table), _perplexity(weighted, 0, table)
    missing, distance = _cohort_means(table, size)
    return Hardness(
        cohort=size,
        clients=len(given),
        population=len(given) if population is None else population,
        classes=int(np.count_nonzero(whole)),
        effective_classes=float(np.average(per_client, weights=table.sum(1))),
        largest_share=float(table.max(1).sum() / whole.sum()),
        effective_clients=float(per_class.mean()),
        missing_classes=missing,
        cohort_distance=distance,
    )


def _perplexity(weighted: Floats, axis: int, table: NDArray[Any]) -> Floats:
    """exp(entropy) along `axis` of the rows or columns that hold samples: n·exp(−Σ n_i log n_i / n)."""
    sums, totals = weighted.sum(axis), table.sum(axis)
    used = totals > 0
    return np.asarray(totals[used] * np.exp(-sums[used] / totals[used]))


def _cohort_means(table: NDArray[Any], size: int) -> tuple[float, float]:
    """Means over many cohorts of `size` clients: classes that a cohort lacks, and distance of its labels from all."""
    generator = Streams(0).numpy(Stream.HARDNESS)
    cohorts = _COHORTS if size < len(table) else 1
    drawn = np.stack([table[generator.choice(len(table), size, replace=False)].sum(0) for _ in range(cohorts)])
    mixes, whole = drawn / drawn.sum(1, keepdims=True), table.sum(0) / table.sum()
    lacking = mixes < np.minimum(_SCARCE, _SCARCE_RELATIVE * whole)
    return float(lacking.sum(1).mean()), float(np.abs(mixes - whole).sum(1).mean() / 2)
