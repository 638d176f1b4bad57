"""The section of the page that says how often the clients took part."""

import statistics
from collections.abc import Sequence

from fedblade.core.words import plural
from fedblade.report._blocks import Block, Cell, Details, Paragraph, Section, TableBlock, columns
from fedblade.report._results import signed
from fedblade.results import Contribution, Group, RunRecord, client_name, participation, percent

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


def participation_section(groups: Sequence[Group]) -> list[Section]:
    """Who took part how often, once for all runs with the same cohorts; nothing before the first round."""
    alike: dict[tuple[int, tuple[Contribution, ...], tuple[str, ...]], list[str]] = {}
    for group in groups:
        for run in group.runs:
            contributions = participation(run)
            if contributions:
                clients = tuple(client_name(run, contribution.client) for contribution in contributions)
                alike.setdefault((_population(run, contributions), tuple(contributions), clients), []).append(
                    _name(group, run)
                )
    if not alike:
        return []
    named = [(_first_name(names), *cohorts) for cohorts, names in alike.items()]
    rows = [_summary(name, population, contributions) for name, population, contributions, _ in named]
    blocks: list[Block] = [TableBlock("How often clients took part", columns(_SUMMARY, ("runs",)), rows)]
    blocks += [_clients(name, contributions, clients) for name, _, contributions, clients in named[:_MOST_LISTS]]
    return [Section("participation", "Who took part?", [*blocks, Paragraph(_NOTE), *_unseen(groups)])]


def _name(group: Group, run: RunRecord) -> str:
    return group.label if run.seed is None else f"{group.label}, seed {run.seed}"


def _first_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {plural(len(names) - 1, 'more run')}"


def _population(run: RunRecord, contributions: Sequence[Contribution]) -> int:
    """The number of all clients; runs whose configuration does not say it have at least those that took part."""
    federation = run.config.get("federation")
    stored = federation.get("num_clients") if isinstance(federation, dict) else None
    return max(stored if isinstance(stored, int) else 0, contributions[-1].client + 1)


def _summary(name: str, population: int, contributions: Sequence[Contribution]) -> list[Cell]:
    times = [0] * (population - len(contributions)) + sorted(client.added for client in contributions)
    asked, added = sum(client.asked for client in contributions), sum(client.added for client in contributions)
    took_part = sum(client.added > 0 for client in contributions)
    return [
        Cell(name),
        Cell(f"{took_part} of {population}"),
        Cell(str(min(times))),
        Cell(f"{statistics.median(times):g}"),
        Cell(str(max(times))),
        Cell(f"{added} of {asked}", warning=added < asked),
    ]


def _clients(name: str, contributions: Sequence[Contribution], names: Sequence[str]) -> Details:
    known = {client.client: label for client, label in zip(contributions, names, strict=True)}
    often = sorted(contributions, key=lambda client: (-client.added, client.client))[:_MOST_CLIENTS]
    rows = [
        [Cell(known[client.client]), Cell(str(client.asked)), Cell(str(client.added), warning=client.missing > 0)]
        for client in sorted(often, key=lambda client: client.client)
    ]
    headings = ("client", "rounds chosen", "rounds added")
    left_out = f" (the {_MOST_CLIENTS} most frequent)" if len(contributions) > _MOST_CLIENTS else ""
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
