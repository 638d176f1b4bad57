"""How the labels are spread over clients: a map of each split, and how hard it makes training."""

from collections.abc import Sequence

from fedblade.charts import Split, distinct_splits
from fedblade.core.words import plural
from fedblade.report._blocks import (
    NARROW,
    WIDE,
    Block,
    Cell,
    Details,
    Paragraph,
    Picture,
    Section,
    TableBlock,
    columns,
    trusted,
)
from fedblade.report._labelmap import draw_label_map
from fedblade.results import Group, Partition

# Label maps, and cells of all of them together.
_MOST_MAPS, _MOST_CELLS = 6, 60_000
_HEADINGS = (
    "split", "clients per round", "effective classes per client", "samples in the largest class, %",
    "effective clients per class", "classes a cohort lacks", "distance of a cohort", "level",
)  # fmt: skip
_READING = (
    "Effective numbers are exponentials of entropies: ten classes in equal parts count as ten, and a class with few "
    "samples counts little. A cohort is the clients of one round; it lacks a class that is below 1 % of its samples "
    "(below a tenth of the class's share of all data, if that is less). The distance is the total variation between "
    "the labels of a cohort and those of all data: 0 if they are alike, 1 if they have nothing in common."
)


def splits(groups: Sequence[Group]) -> Section:
    """The section about all distinct splits."""
    distinct = distinct_splits(groups)
    mapped = [(split, split.partition) for split in distinct if split.partition is not None]
    unmapped = [Paragraph(split.seen) for split in distinct if split.partition is None][:_MOST_MAPS]
    blocks = [*_maps(mapped), *unmapped, *_hardness_table(distinct)]
    nothing = [Paragraph("No run has stored its partition.")]
    return Section("labels", "How are the labels spread over clients?", blocks or nothing)


def _maps(mapped: Sequence[tuple[Split, Partition]]) -> list[Block]:
    """The first map open, the next ones folded, as many as the page has room for."""
    if not mapped:
        return []
    largest = max(len(partition.counts) * len(partition.counts[0]) for _, partition in mapped)
    room = max(1, min(_MOST_MAPS, _MOST_CELLS // largest))
    first, *others = (
        _label_map(split, partition, f"label-map-{index}" if len(mapped) > 1 else "label-map")
        for index, (split, partition) in enumerate(mapped[:room], 1)
    )
    blocks: list[Block] = [Paragraph(first.title, "figure-title"), first]
    blocks += [Details(picture.title, [picture]) for picture in others]
    left = len(mapped) - 1 - len(others)
    if left:
        blocks.append(Paragraph(f"{plural(left, 'more partition')} {'is' if left == 1 else 'are'} not shown here."))
    return blocks


def _label_map(split: Split, partition: Partition, name: str) -> Picture:
    wide, narrow = (
        trusted(
            draw_label_map(
                partition.counts,
                width,
                name=f"{name}-{kind}",
                class_names=partition.class_names,
                client_names=partition.client_names,
            )
        )
        for width, kind in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    return Picture(f"Who holds which labels: {split.title}", wide, narrow, split.reading, split.seen)


def _hardness_table(splits: Sequence[Split]) -> list[Block]:
    """A line for each split and size of cohorts, and how to read it."""
    rows = [
        [
            Cell(text)
            for text in (
                split.title,
                str(hardness.cohort),
                f"{hardness.effective_classes:.2f} of {hardness.classes}",
                f"{100 * hardness.largest_share:.0f}",
                f"{hardness.effective_clients:.1f} of {hardness.clients}",
                f"{hardness.missing_classes:.2f} of {hardness.classes}",
                f"{hardness.cohort_distance:.2f}",
                hardness.level,
            )
        ]
        for split in splits
        for hardness in split.hardness
    ]
    listed = TableBlock("How hard the splits are", columns(_HEADINGS, ("split", "level")), rows)
    return [listed, Paragraph(_READING)] if rows else []
