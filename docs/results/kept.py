"""The runs that `queue` keeps, as the tables read them, and the check that the runs of one table belong together."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedblade import protocols
from fedblade.hardness import Hardness, measure
from fedblade.presets.published import Published
from fedblade.results import HISTORY, PARTITION, RunDirectory, read_object

OWN_PARTS = ("method ", "head ")
"""What the parts are called in which the methods of one table differ; all other parts are common."""


@dataclass(frozen=True)
class Kept:
    """A kept run of one seed."""

    folder: Path
    seed: int

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The result of the run."""
        found = RunDirectory(self.folder).finished_summary()
        if found is None:
            sys.exit(f"'{self.folder}' holds no finished run. Remove the folder, or keep the run again with keep.py.")
        return found

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """All rounds."""
        return [json.loads(line) for line in (self.folder / HISTORY).read_text(encoding="utf-8").splitlines()]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The measured rounds."""
        return [row for row in self.history if "test_accuracy" in row]

    @cached_property
    def split(self) -> dict[str, Any]:
        """What the run stored of its data, its split and the revisions of its parts."""
        return read_object(self.folder / PARTITION)

    @cached_property
    def hardness(self) -> Hardness:
        """How hard the split is, measured here, because older runs have not stored it."""
        counts = read_object(self.folder.parent / "splits" / f"{self.split['digest'][:16]}.json")["counts"]
        cohort = RunDirectory(self.folder).stored_config()["federation"]["clients_per_round"]
        return measure(counts, cohort)

    @property
    def commit(self) -> str:
        """The commit of the code that trained."""
        return str(self.summary["versions"]["commit"])[:7]

    @property
    def accuracy(self) -> float:
        """The accuracy that the protocol of the run reports."""
        return float(self.summary["accuracy"])

    @property
    def final(self) -> float:
        """The accuracy of the last round."""
        return float(self.summary["final_accuracy"])

    @property
    def last(self) -> list[float]:
        """The accuracies of the last rounds that the protocol of the run is about."""
        count = int(self.summary["protocol"].removeprefix("last"))
        return [float(row["test_accuracy"]) for row in self.rounds[-count:]]

    def rounds_to(self, threshold: float) -> int | None:
        """The first measured round at or above an accuracy."""
        return protocols.rounds_to(self.rounds, threshold)


@dataclass(frozen=True)
class Method:
    """A line of a table: the kept runs of a method by ascending seed, how many the study has, the paper's number."""

    label: str
    runs: tuple[Kept, ...]
    planned: int
    published: Published | None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return protocols.mean_std([run.accuracy for run in self.runs])[0]

    @property
    def std(self) -> float | None:
        """The sample standard deviation over seeds."""
        return protocols.mean_std([run.accuracy for run in self.runs])[1]


def common_parts(run: Kept) -> dict[str, int]:
    """The revisions of the parts that all methods of a table share; a part without a stored revision has revision 0."""
    stored = run.split.get("revisions") or {}
    return {part: revision for part, revision in stored.items() if not part.startswith(OWN_PARTS) and revision}


def check_comparable(methods: Sequence[Method], table: str) -> None:
    """Refuse runs of other data, of other revisions of common parts, or of another split with the same seed."""
    runs = [run for method in methods for run in method.runs]
    for run in runs:
        first = next(each for each in runs if each.seed == run.seed)
        for what, found, expected in (
            ("data of digest", run.split["data"], runs[0].split["data"]),
            ("revisions of common parts", common_parts(run), common_parts(runs[0])),
            ("a split of digest", run.split["digest"], first.split["digest"]),
        ):
            if found != expected:
                sys.exit(
                    f"table '{table}': '{run.folder.name}' has {what} {found}, where another run of the table has "
                    f"{expected}. Such runs cannot stand in one table: run one of them again."
                )
