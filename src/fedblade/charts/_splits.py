"""The distinct splits of the data over clients: which runs share one, its table of labels, and how hard it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedblade.hardness import Hardness
from fedblade.results import SKEW_LEVELS, Group, Partition, RunRecord


@dataclass
class Split:
    """One split of the data: the runs' names for it, the seeds that drew it, its table and its hardness."""

    partition: Partition | None
    names: list[str] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)
    hardness: list[Hardness] = field(default_factory=list)

    @property
    def title(self) -> str:
        """`dirichlet alpha 0.1, seeds 1, 2`."""
        return f"{', '.join(self.names)}, seed{'s' if len(self.seeds) > 1 else ''} {', '.join(self.seeds)}"

    @property
    def seen(self) -> str:
        """What the split means for training."""
        return " ".join(hardness.sentence() for hardness in self.hardness)

    @property
    def reading(self) -> str:
        """How to read the map of its labels."""
        counts = self.partition.counts if self.partition else ((),)
        present = sum(sum(n > 0 for n in client) for client in counts) / len(counts)
        return (
            "Each column is a client and each row a class: the larger or stronger the mark, the more samples, and an "
            f"empty cell means none. Here {len(counts)} clients hold {present:.1f} of {len(counts[0])} classes on "
            "average; the emptier the columns, the stronger the label skew. Bars on top show each client's total."
        )

    def add(self, run: RunRecord, hardness: Hardness | None) -> None:
        """Count a run in."""
        seed = "?" if run.seed is None else str(run.seed)
        held_out = ", without the validation samples" if run.on_validation else ""
        for known, value in ((self.names, partition_text(run) + held_out), (self.seeds, seed)):
            known.extend([value] if value not in known else [])
        self.hardness.extend([hardness] if hardness is not None and hardness not in self.hardness else [])


def distinct_splits(groups: Sequence[Group]) -> list[Split]:
    """Every split once: runs with the same table share it, and so do runs without a table of the same hardness."""
    splits: dict[Partition | Hardness, Split] = {}
    for run in (run for group in groups for run in group.runs):
        hardness = run.hardness
        key = run.partition or hardness
        if key is not None:
            splits.setdefault(key, Split(run.partition)).add(run, hardness)
    return list(splits.values())


def partition_text(run: RunRecord) -> str:
    """The name of the split with the setting that says how skewed it is."""
    stored = run.config.get("partition")
    levels = [f"{key} {stored[key]}" for key in SKEW_LEVELS if key in stored] if isinstance(stored, dict) else []
    return " ".join([run.part("partition"), *(level.replace("_", " ") for level in levels)])
