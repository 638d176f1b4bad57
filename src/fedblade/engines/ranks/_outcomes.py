"""Puts the outcomes of the ranks' shares together: sums over ranks, or client by client in ascending id."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.outcome import StepLog
from fedblade.core.sums import Reduce, Sum
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome
from fedblade.engines.packing import pack, unpack
from fedblade.engines.ranks._bytes import Json, Leaves, leaves_of
from fedblade.engines.ranks._errors import describe_error, raise_first_error
from fedblade.engines.ranks._ranks import Ranks


def add_over_ranks(
    ranks: Ranks,
    outcome: RoundOutcome | Exception,
    clients: Sequence[int],
    declared: Iterable[Sum],
    diagnostics: DiagnosticRequest | None,
    device: torch.device,
) -> RoundOutcome:
    """The outcomes of all ranks, added up in float64; only rank 0 gets the result.

    `clients` are the clients behind the rows of sums that keep clients apart. Ranks without clients add zeros; the
    other ranks tell them the shapes. An error of any rank is raised on all ranks.
    """
    requested = tuple(declared)
    tree, facts = ({}, {}) if isinstance(outcome, Exception) else pack(outcome)
    header: Json = {"facts": facts, "leaves": leaves_of(tree), "rows": list(clients)}
    error = outcome if isinstance(outcome, Exception) else None
    headers = ranks.gather(describe_error(error) if error else header)
    raise_first_error(ranks, headers, error)
    reductions = _reductions(requested, diagnostics)
    total: dict[str, Tensor] = {}
    for reduction in ("sum", "max"):
        total |= _reduced(ranks, tree, _all_leaves(headers, reductions, reduction), reduction, device)
    total |= _rows_of_clients(ranks, tree, headers, _all_leaves(headers, reductions, "each"), device)
    if not ranks.is_rank_0:
        return RoundOutcome()
    return unpack(total, merged_facts([rank_header["facts"] for rank_header in headers]), requested, diagnostics)


def add_by_client(
    ranks: Ranks,
    outcomes: Mapping[int, RoundOutcome] | Exception,
    shares: Sequence[Sequence[int]],
    declared: Iterable[Sum],
    diagnostics: DiagnosticRequest | None,
    device: torch.device,
) -> RoundOutcome:
    """The outcomes of single clients, added on rank 0 in ascending id: the same bits as with the sequential engine."""
    requested = tuple(declared)
    error = outcomes if isinstance(outcomes, Exception) else None
    packed = {} if isinstance(outcomes, Exception) else {client: pack(outcome) for client, outcome in outcomes.items()}
    header: Json = {str(client): [facts, leaves_of(tree)] for client, (tree, facts) in packed.items()}
    headers = ranks.gather(describe_error(error) if error else header)
    raise_first_error(ranks, headers, error)
    if not ranks.is_rank_0:
        for tree, _ in packed.values():
            ranks.send(tree)
        return RoundOutcome()
    rank_of = {client: rank for rank, share in enumerate(shares) for client in share}
    total, seconds = RoundOutcome(), [0.0] * len(shares)
    for client in sorted(rank_of):
        rank = rank_of[client]
        facts, leaves = headers[rank][str(client)]
        tree = packed[client][0] if rank == ranks.rank else ranks.receive(leaves, rank)
        seconds[rank] += facts["seconds"]
        moved = {name: leaf.to(device) for name, leaf in tree.items()}
        total = total + unpack(moved, facts | {"seconds": 0.0}, requested, diagnostics)
    return total + RoundOutcome(observed=DiagnosticSums(seconds=max(seconds)))


def merged_facts(shares: Sequence[Json]) -> Json:
    """The facts of all shares as the facts of one: counts are added, and ranks measure at the same time."""
    log = sum((StepLog(facts["totals"], facts["steps"]) for facts in shares), StepLog())
    kinds = dict.fromkeys(kind for facts in shares for kind in facts["sent"])
    return {
        "sent": {kind: list(dict.fromkeys(name for facts in shares for name in facts["sent"][kind])) for kind in kinds},
        "totals": dict(log.totals),
        "steps": dict(log.steps),
        "bytes_up": sum(facts["bytes_up"] for facts in shares),
        "seconds": max(facts["seconds"] for facts in shares),
    }


def _reductions(declared: Sequence[Sum], diagnostics: DiagnosticRequest | None) -> dict[str, Reduce]:
    """How each packed tree is reduced."""
    requested = {
        "sums": declared,
        "every": () if diagnostics is None else diagnostics.every,
        "first": () if diagnostics is None else diagnostics.first,
    }
    return {f"{kind}/{sum_.name}": sum_.reduce for kind, sums in requested.items() for sum_ in sums}


def _all_leaves(headers: Sequence[Json], reductions: Mapping[str, Reduce], reduction: str) -> Leaves:
    """The leaves of all ranks that have this reduction, in the same order on every rank."""
    leaves = {name: (name, dtype, shape) for header in headers for name, dtype, shape in header["leaves"]}
    return [leaves[name] for name in sorted(leaves) if reductions[name.rpartition("/")[0]] == reduction]


def _reduced(ranks: Ranks, tree: Tree, leaves: Leaves, reduction: str, device: torch.device) -> Tree:
    """The sums or maxima over all ranks; all leaves travel in one vector."""
    if not leaves:
        return {}
    neutral = float("-inf") if reduction == "max" else 0.0

    def flat(name: str, shape: list[int]) -> Tensor:
        if name in tree:
            return tree[name].to(device, torch.float64).reshape(-1)
        return torch.full((torch.Size(shape).numel(),), neutral, dtype=torch.float64, device=device)

    vector = ranks.reduce(torch.cat([flat(name, shape) for name, _, shape in leaves]), reduction)
    parts = torch.split(vector, [torch.Size(shape).numel() for _, _, shape in leaves])
    return {name: part.reshape(shape).clone() for (name, _, shape), part in zip(leaves, parts, strict=True)}


def _rows_of_clients(ranks: Ranks, tree: Tree, headers: Sequence[Json], leaves: Leaves, device: torch.device) -> Tree:
    """Sums that keep clients apart: on rank 0, one row for each client in ascending id."""
    if not leaves:
        return {}
    names = [name for name, _, _ in leaves]
    own_rows = {name: tree[name] for name in names if name in tree}
    if not ranks.is_rank_0:
        ranks.send(own_rows)
        return {}
    trees, clients = [own_rows], list(headers[0]["rows"]) if own_rows else []
    for rank, header in enumerate(headers[1:], start=1):
        sent = sorted([leaf for leaf in header["leaves"] if leaf[0] in names], key=lambda leaf: names.index(leaf[0]))
        if sent:
            trees.append(ranks.receive(sent, rank))
            clients += header["rows"]
    order = sorted(range(len(clients)), key=clients.__getitem__)
    return {name: torch.cat([rows[name].to(device) for rows in trees if name in rows])[order] for name in names}
