"""How the labels are spread over clients: a map of each split, and how hard it makes training."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedblade.core.words import plural
from fedblade.hardness import Hardness
from fedblade.report._charts import Figure
from fedblade.report._header import partition_text
from fedblade.report._html import Column, details, figure, paragraph, section, table
from fedblade.report._labelmap import draw_label_map
from fedblade.report._svg import escape
from fedblade.results import Group, Partition, RunRecord

# Label maps, and cells of all of them together.
_MOST_MAPS, _MOST_CELLS = 6, 60_000
_COLUMNS = (
    Column("split", numeric=False),
    Column("clients per round"),
    Column("effective classes per client"),
    Column("samples in the largest class, %"),
    Column("effective clients per class"),
    Column("classes a cohort lacks"),
    Column("distance of a cohort"),
    Column("level", numeric=False),
)
_READING = (
    "Effective numbers are exponentials of entropies: ten classes in equal parts count as ten, and a class with few "
    "samples counts little. A cohort is the clients of one round; it lacks a class that is below 1 % of its samples "
    "(below a tenth of the class's share of all data, if that is less). The distance is the total variation between "
    "the labels of a cohort and those of all data: 0 if they are alike, 1 if they have nothing in common."
)


@dataclass
class _Split:
    """One split of the data: the runs' names for it, the seeds that drew it, its map and its hardness."""

    partition: Partition | None
    names: list[str] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)
    measured: list[Hardness] = field(default_factory=list)

    def add(self, run: RunRecord, measured: Hardness | None) -> None:
        """Count a run in."""
        seed = "?" if run.seed is None else str(run.seed)
        for known, value in ((self.names, partition_text(run)), (self.seeds, seed)):
            known.extend([value] if value not in known else [])
        self.measured.extend([measured] if measured is not None and measured not in self.measured else [])

    @property
    def title(self) -> str:
        """`dirichlet alpha 0.1, seeds 1, 2`."""
        return f"{', '.join(self.names)}, seed{'s' if len(self.seeds) > 1 else ''} {', '.join(self.seeds)}"

    @property
    def said(self) -> str:
        """What the split means for training."""
        return " ".join(each.sentence() for each in self.measured)


def splits(groups: Sequence[Group]) -> str:
    """The section about all distinct splits."""
    found = _distinct(groups)
    mapped = [(split, split.partition) for split in found if split.partition is not None]
    unmapped = [paragraph(split.said) for split in found if split.partition is None][:_MOST_MAPS]
    parts = [*_maps(mapped), *unmapped, *_hardness_table(found)] or [paragraph("No run has stored its partition.")]
    return section("labels", "How are the labels spread over clients?", *parts)


def _distinct(groups: Sequence[Group]) -> list[_Split]:
    """Every split once: runs with the same map share it, and so do runs without a map that measured the same."""
    found: dict[Partition | Hardness, _Split] = {}
    for run in (run for group in groups for run in group.runs):
        measured = run.hardness
        key = run.partition or measured
        if key is not None:
            found.setdefault(key, _Split(run.partition)).add(run, measured)
    return list(found.values())


def _maps(mapped: Sequence[tuple[_Split, Partition]]) -> list[str]:
    """The first map open, the next ones folded, as many as the page has room for."""
    if not mapped:
        return []
    largest = max(len(partition.counts) * len(partition.counts[0]) for _, partition in mapped)
    room = max(1, min(_MOST_MAPS, _MOST_CELLS // largest))
    maps = [
        _label_map(split, partition, f"label-map-{index}" if len(mapped) > 1 else "label-map")
        for index, (split, partition) in enumerate(mapped[:room], 1)
    ]
    parts = [paragraph(maps[0].title, "figure-title"), figure(maps[0])]
    parts += [details(each.title, figure(each)) for each in maps[1:]]
    left = len(mapped) - len(maps)
    if left:
        parts.append(paragraph(f"{plural(left, 'more partition')} {'is' if left == 1 else 'are'} not shown here."))
    return parts


def _label_map(split: _Split, partition: Partition, name: str) -> Figure:
    def draw(width: float, unique: str) -> str:
        return draw_label_map(partition.counts, class_names=partition.class_names, title=None, width=width, name=unique)

    clients, classes = len(partition.counts), len(partition.counts[0])
    held = sum(sum(n > 0 for n in row) for row in partition.counts) / clients
    reading = (
        "Each column is a client and each row a class: the larger or stronger the mark, the more samples, and an empty "
        f"cell means none. Here {clients} clients hold {held:.1f} of {classes} classes on average; the emptier the "
        "columns, the stronger the label skew. Bars on top show each client's total."
    )
    return Figure(name, f"Who holds which labels: {split.title}", reading, draw, seen=split.said)


def _hardness_table(found: Sequence[_Split]) -> list[str]:
    """A line for each split and size of cohorts, and how to read it."""
    rows = [
        [
            escape(split.title),
            str(each.cohort),
            f"{each.effective_classes:.2f} of {each.classes}",
            f"{100 * each.largest_share:.0f}",
            f"{each.effective_clients:.1f} of {each.clients}",
            f"{each.missing_classes:.2f} of {each.classes}",
            f"{each.cohort_distance:.2f}",
            each.level,
        ]
        for split in found
        for each in split.measured
    ]
    return [table("How hard the splits are", _COLUMNS, rows), paragraph(_READING)] if rows else []
