"""The sections of the page that say who took part how often, and who contributed to runs on nodes."""

import statistics
from collections.abc import Sequence

from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.report._results import signed
from fedblade.results import MISSING, Contribution, Group, RunRecord, client_name, contributions, participation, percent

_MOST_CLIENTS = 100
"""Clients that are listed one by one: those that took part most often."""
_MOST_LISTS = 12
"""Lists of clients on a page: a sweep may have hundreds of runs."""
_SUMMARY = ("runs", "clients that took part", "rounds of a client: fewest", "median", "most", "answers added")
_UNSEEN = ("runs", "unseen clients", "clients that trained", "gap")
_KEYS = ("unseen_clients_accuracy", "trained_clients_accuracy", "unseen_gap")
_NOTE = (
    "Runs of one seed have the same cohorts unless clients are chosen by their losses. Clients that were never "
    "chosen count as 0 rounds. An answer is missing where a client was chosen and its update was not added."
)
_UNSEEN_NOTE = (
    "Mean accuracy on the clients' own test samples: of clients that were kept from training (federation.unseen), and "
    "of clients whose updates were added. The gap is the second minus the first, in percentage points."
)
_MOST_ON_NODES = 50
"""Clients of a run on nodes that are listed: those that are missing most often, then those with the longest updates."""
_CONTRIBUTION = ("client", "rounds asked", "rounds added", "median length", "largest length")
_NODES_NOTE = (
    "A round adds the replies of the clients that answered in time and were not refused. Lengths of updates are in "
    "units of the model's length; flower.max_norm refuses longer updates. A value a few times above the largest honest "
    "length stops more harmful updates than the default does. The same numbers, round by round, are in "
    "deployment.jsonl."
)


def participation_section(groups: Sequence[Group]) -> list[Section]:
    """Who took part how often, once for all runs with the same cohorts; nothing before the first round."""
    alike: dict[tuple[int, tuple[Contribution, ...], tuple[str, ...]], list[str]] = {}
    for group in groups:
        for run in group.runs:
            if clients := participation(run):
                names = tuple(client_name(run, client.client) for client in clients)
                alike.setdefault((_population(run, clients), tuple(clients), names), []).append(_name(group, run))
    if not alike:
        return []
    named = [(_first_name(names), *cohorts) for cohorts, names in alike.items()]
    rows = [_summary(name, population, clients) for name, population, clients, _ in named]
    blocks: list[Block] = [TableBlock("How often clients took part", columns(_SUMMARY, ("runs",)), rows)]
    blocks += [_clients(name, clients, names) for name, _, clients, names in named[:_MOST_LISTS]]
    return [Section("participation", "Who took part?", [*blocks, Paragraph(_NOTE), *_unseen(groups)])]


def contributors_section(groups: Sequence[Group]) -> list[Section]:
    """A table for each run on nodes; nothing if all runs were on one machine."""
    runs = [(group, run, contributions(run)) for group in groups for run in group.runs]
    deployed = [(group, run, clients) for group, run, clients in runs if clients]
    blocks: list[Block] = [
        Details(_name(group, run), [_table(group, run, clients)], opened=len(deployed) == 1)
        for group, run, clients in deployed
    ]
    return [Section("contributors", "Who contributed?", [*blocks, Paragraph(_NODES_NOTE)])] if blocks else []


def _name(group: Group, run: RunRecord) -> str:
    return group.label if run.seed is None else f"{group.label}, seed {run.seed}"


def _first_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {plural(len(names) - 1, 'more run')}"


def _population(run: RunRecord, clients: Sequence[Contribution]) -> int:
    """The number of all clients; runs whose configuration does not say it have at least those that took part."""
    federation = run.config.get("federation")
    stored = federation.get("num_clients") if isinstance(federation, dict) else None
    return max(stored if isinstance(stored, int) else 0, clients[-1].client + 1)


def _summary(name: str, population: int, clients: Sequence[Contribution]) -> list[Cell]:
    times = [0] * (population - len(clients)) + sorted(client.added for client in clients)
    asked, added = sum(client.asked for client in clients), sum(client.added for client in clients)
    took_part = sum(client.added > 0 for client in clients)
    return [
        Cell(name),
        Cell(f"{took_part} of {population}"),
        Cell(str(min(times))),
        Cell(f"{statistics.median(times):g}"),
        Cell(str(max(times))),
        Cell(f"{added} of {asked}", warning=added < asked),
    ]


def _clients(name: str, clients: Sequence[Contribution], names: Sequence[str]) -> Details:
    known = {client.client: label for client, label in zip(clients, names, strict=True)}
    often = sorted(clients, key=lambda client: (-client.added, client.client))[:_MOST_CLIENTS]
    rows = [
        [Cell(known[client.client]), Cell(str(client.asked)), Cell(str(client.added), warning=client.missing > 0)]
        for client in sorted(often, key=lambda client: client.client)
    ]
    headings = ("client", "rounds chosen", "rounds added")
    left_out = f" (the {_MOST_CLIENTS} most frequent)" if len(clients) > _MOST_CLIENTS else ""
    table = TableBlock(f"Rounds of each client: {name}", columns(headings, ("client",)), rows)
    return Details(f"Each client{left_out}: {name}", [table])


def _unseen(groups: Sequence[Group]) -> list[Block]:
    """Clients that never trained against clients that did, before and after tuning."""
    rows = []
    for group in groups:
        for run in group.runs:
            for prefix, what in (("", ""), ("tuned_", ", tuned")):
                stored = [run.summary.get(f"{prefix}{key}") for key in _KEYS]
                numbers = [number for number in stored if isinstance(number, float)]
                if len(numbers) == len(_KEYS):
                    texts = (*map(percent, numbers[:2]), signed(numbers[2]))
                    rows.append([Cell(f"{_name(group, run)}{what}"), *map(Cell, texts)])
    return [TableBlock("Unseen clients", columns(_UNSEEN, ("runs",)), rows), Paragraph(_UNSEEN_NOTE)] if rows else []


def _table(group: Group, run: RunRecord, clients: Sequence[Contribution]) -> TableBlock:
    first = sorted(clients, key=lambda client: (-client.missing, -max(client.lengths, default=0.0)))[:_MOST_ON_NODES]
    listed = sorted(first, key=lambda client: client.client)
    every = tuple(length for client in clients for length in client.lengths)
    total = Contribution(-1, sum(client.asked for client in clients), sum(client.added for client in clients), every)
    rows = [_cells(client_name(run, client.client), client) for client in listed]
    rows.append(_cells(f"all {len(clients)}", total))
    return TableBlock(f"Contributions to {_name(group, run)}", columns(_CONTRIBUTION, ("client",)), rows)


def _cells(name: str, client: Contribution) -> list[Cell]:
    lengths = client.lengths
    return [
        Cell(name),
        Cell(str(client.asked)),
        Cell(str(client.added), warning=client.missing > 0),
        Cell(f"{statistics.median(lengths):.3g}" if lengths else MISSING),
        Cell(f"{max(lengths):.3g}" if lengths else MISSING),
    ]
