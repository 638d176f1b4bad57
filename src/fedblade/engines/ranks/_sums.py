"""What the ranks' shares of a cohort sent, put together: added up over ranks, or client by client in ascending id."""

import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from fedblade.core import errors
from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.outcome import StepLog
from fedblade.core.sums import Reduce, Sum
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome
from fedblade.engines.packing import pack, unpack
from fedblade.engines.ranks._bytes import Json, Leaves, leaves_of
from fedblade.engines.ranks._ranks import Ranks

_KNOWN = (
    errors.NonFinite, errors.CorruptFile, errors.RunFailed, errors.Unsupported, errors.Misconfigured,
)  # fmt: skip
"""What another rank's error is raised as; anything else is a bug there and a failed run here."""


def described(error: BaseException) -> Json:
    """An error as JSON can hold it."""
    names = [each.__name__ for each in type(error).__mro__]
    known = next((each.__name__ for each in _KNOWN if each.__name__ in names), None)
    text = str(error) if known else f"unexpected {type(error).__name__}: {error}"
    return {"error": {"type": known, "text": text, "trace": "".join(traceback.format_exception(error))}}


def raise_described(rank: int | None, error: Mapping[str, Any]) -> NoReturn:
    """Raise an error that another rank has described."""
    kind = {each.__name__: each for each in _KNOWN}.get(error["type"], errors.RunFailed)
    raised = kind(error["text"] if rank is None else f"rank {rank}: {error['text']}")
    raised.add_note(error["trace"])
    raise raised


def refuse_errors(ranks: Ranks, headers: Sequence[Json], mine: Exception | None) -> None:
    """Raise the error of the first rank that has one; one's own as it is. All ranks do, and are idle then."""
    for rank, header in enumerate(headers):
        if "error" in header:
            ranks.busy = False
            if rank == ranks.rank and mine is not None:
                raise mine
            raise_described(rank, header["error"])


def added(
    ranks: Ranks,
    outcome: RoundOutcome | Exception,
    rows: Sequence[int],
    declared: Iterable[Sum],
    diagnostics: DiagnosticRequest | None,
    where: torch.device,
) -> RoundOutcome:
    """Sums over all ranks in float64. `rows` are the clients of the rows that are kept apart; rank 0 gets the whole.

    Ranks without clients add zeros, whose shapes the others know. An error of any rank is raised on all of them.
    """
    chosen = tuple(declared)
    own, facts = ({}, {}) if isinstance(outcome, Exception) else pack(outcome)
    header: Json = {"facts": facts, "leaves": leaves_of(own), "rows": list(rows)}
    failed = outcome if isinstance(outcome, Exception) else None
    headers = ranks.gather(described(failed) if failed else header)
    refuse_errors(ranks, headers, failed)
    kinds = _reduces(chosen, diagnostics)
    whole: dict[str, Tensor] = {}
    for kind in ("sum", "max"):
        whole |= _reduced(ranks, own, _union(headers, kinds, kind), kind, where)
    whole |= _kept_apart(ranks, own, headers, _union(headers, kinds, "each"), where)
    if not ranks.leads:
        return RoundOutcome()
    return unpack(whole, merged([each["facts"] for each in headers]), chosen, diagnostics)


def one_by_one(
    ranks: Ranks,
    outcomes: Mapping[int, RoundOutcome] | Exception,
    shares: Sequence[Sequence[int]],
    declared: Iterable[Sum],
    diagnostics: DiagnosticRequest | None,
    where: torch.device,
) -> RoundOutcome:
    """What every client sent, added on rank 0 in ascending id: the very bits of one client after another."""
    chosen = tuple(declared)
    failed = outcomes if isinstance(outcomes, Exception) else None
    packed = {} if isinstance(outcomes, Exception) else {client: pack(each) for client, each in outcomes.items()}
    header: Json = {str(client): [facts, leaves_of(tree)] for client, (tree, facts) in packed.items()}
    headers = ranks.gather(described(failed) if failed else header)
    refuse_errors(ranks, headers, failed)
    if not ranks.leads:
        for tree, _ in packed.values():
            ranks.send(tree)
        return RoundOutcome()
    places = {client: rank for rank, share in enumerate(shares) for client in share}
    total, seconds = RoundOutcome(), [0.0] * len(shares)
    for client in sorted(places):
        rank = places[client]
        facts, leaves = headers[rank][str(client)]
        tree = packed[client][0] if rank == ranks.rank else ranks.receive(leaves, rank)
        seconds[rank] += facts["seconds"]
        moved = {name: leaf.to(where) for name, leaf in tree.items()}
        total = total + unpack(moved, facts | {"seconds": 0.0}, chosen, diagnostics)
    return total + RoundOutcome(observed=DiagnosticSums(seconds=max(seconds)))


def merged(facts: Sequence[Json]) -> Json:
    """The facts of all shares as those of one: counts add up, and ranks observe at the same time."""
    log = sum((StepLog(each["totals"], each["steps"]) for each in facts), StepLog())
    kinds = dict.fromkeys(kind for each in facts for kind in each["sent"])
    return {
        "sent": {kind: list(dict.fromkeys(name for each in facts for name in each["sent"][kind])) for kind in kinds},
        "totals": dict(log.totals),
        "steps": dict(log.steps),
        "bytes_up": sum(each["bytes_up"] for each in facts),
        "seconds": max(each["seconds"] for each in facts),
    }


def _reduces(declared: Sequence[Sum], diagnostics: DiagnosticRequest | None) -> dict[str, Reduce]:
    """How each packed tree is put together."""
    asked = {
        "sums": declared,
        "every": () if diagnostics is None else diagnostics.every,
        "first": () if diagnostics is None else diagnostics.first,
    }
    return {f"{kind}/{each.name}": each.reduce for kind, sums in asked.items() for each in sums}


def _union(headers: Sequence[Json], kinds: Mapping[str, Reduce], kind: str) -> Leaves:
    """The leaves of a kind that any rank has, in the same order everywhere."""
    found = {name: (name, dtype, shape) for header in headers for name, dtype, shape in header["leaves"]}
    return [found[name] for name in sorted(found) if kinds[name.rpartition("/")[0]] == kind]


def _reduced(ranks: Ranks, own: Tree, leaves: Leaves, kind: str, where: torch.device) -> Tree:
    """The sums or maxima of all ranks, in one vector."""
    if not leaves:
        return {}
    empty = float("-inf") if kind == "max" else 0.0

    def flat(name: str, shape: list[int]) -> Tensor:
        if name in own:
            return own[name].to(where, torch.float64).reshape(-1)
        return torch.full((torch.Size(shape).numel(),), empty, dtype=torch.float64, device=where)

    vector = ranks.reduce(torch.cat([flat(name, shape) for name, _, shape in leaves]), kind)
    parts = torch.split(vector, [torch.Size(shape).numel() for _, _, shape in leaves])
    return {name: part.reshape(shape).clone() for (name, _, shape), part in zip(leaves, parts, strict=True)}


def _kept_apart(ranks: Ranks, own: Tree, headers: Sequence[Json], leaves: Leaves, where: torch.device) -> Tree:
    """Rows of single clients, on rank 0, in ascending id."""
    if not leaves:
        return {}
    names = [name for name, _, _ in leaves]
    mine = {name: own[name] for name in names if name in own}
    if not ranks.leads:
        ranks.send(mine)
        return {}
    trees, clients = [mine], list(headers[0]["rows"]) if mine else []
    for rank, header in enumerate(headers[1:], start=1):
        theirs = sorted([each for each in header["leaves"] if each[0] in names], key=lambda each: names.index(each[0]))
        if theirs:
            trees.append(ranks.receive(theirs, rank))
            clients += header["rows"]
    order = sorted(range(len(clients)), key=clients.__getitem__)
    return {name: torch.cat([tree[name].to(where) for tree in trees if name in tree])[order] for name in names}
