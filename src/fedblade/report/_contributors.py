"""The section of the page that says who contributed to runs on nodes, and how long the updates were."""

import statistics
from collections.abc import Sequence

from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.results import MISSING, Contribution, Group, RunRecord, client_name, contributions

_MOST_CLIENTS = 50
"""Clients of a run that are listed: those that are missing most often, then those with the longest updates."""
_HEADINGS = ("client", "rounds asked", "rounds added", "median length", "largest length")
_NOTE = (
    "A round adds the replies of the clients that answered in time and were not refused. Lengths of updates are in "
    "units of the model's length; flower.max_norm refuses longer updates. A value a few times above the largest honest "
    "length stops more harmful updates than the default does. The same numbers, round by round, are in "
    "deployment.jsonl."
)


def contributors_section(groups: Sequence[Group]) -> list[Section]:
    """A table for each run on nodes; nothing if all runs were on one machine."""
    runs = [(group, run, contributions(run)) for group in groups for run in group.runs]
    deployed = [(group, run, clients) for group, run, clients in runs if clients]
    blocks: list[Block] = [
        Details(_name(group, run), [_table(group, run, clients)], opened=len(deployed) == 1)
        for group, run, clients in deployed
    ]
    return [Section("contributors", "Who contributed?", [*blocks, Paragraph(_NOTE)])] if blocks else []


def _name(group: Group, run: RunRecord) -> str:
    return group.label if run.seed is None else f"{group.label}, seed {run.seed}"


def _table(group: Group, run: RunRecord, clients: Sequence[Contribution]) -> TableBlock:
    first = sorted(clients, key=lambda client: (-client.missing, -max(client.lengths, default=0.0)))[:_MOST_CLIENTS]
    listed = sorted(first, key=lambda client: client.client)
    every = tuple(length for client in clients for length in client.lengths)
    total = Contribution(-1, sum(client.asked for client in clients), sum(client.added for client in clients), every)
    rows = [_cells(client_name(run, client.client), client) for client in listed]
    rows.append(_cells(f"all {len(clients)}", total))
    return TableBlock(f"Contributions to {_name(group, run)}", columns(_HEADINGS, ("client",)), rows)


def _cells(name: str, client: Contribution) -> list[Cell]:
    lengths = client.lengths
    return [
        Cell(name),
        Cell(str(client.asked)),
        Cell(str(client.added), warning=client.missing > 0),
        Cell(f"{statistics.median(lengths):.3g}" if lengths else MISSING),
        Cell(f"{max(lengths):.3g}" if lengths else MISSING),
    ]
