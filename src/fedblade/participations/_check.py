"""The check of what a participation returns."""

from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.participations._view import Ints, ParticipationView

_MOST_NAMED = 5


def chosen_clients(name: str, given: Any, view: ParticipationView) -> Ints:
    """The cohort that the participation `name` returned, in ascending order; anything else than clients is refused."""
    where = f"participation '{name}' chose for round {view.round + 1}"
    chosen = _as_integers(given, where)
    if not len(chosen):
        raise Misconfigured(f"{where} no client. Return at least one of `view.clients`.")
    ids, times = np.unique(chosen, return_counts=True)
    if len(ids) < len(chosen):
        raise Misconfigured(f"{where} client {ids[times > 1][0]} more than once. Return each client once.")
    # Both ascend; no array as long as the population is made.
    places = np.searchsorted(view.clients, ids).clip(max=len(view.clients) - 1)
    unknown = ids[view.clients[places] != ids]
    if len(unknown):
        named = ", ".join(map(str, unknown[:_MOST_NAMED])) + (", …" if len(unknown) > _MOST_NAMED else "")
        raise Misconfigured(
            f"{where} the ids {named}, which cannot take part. Choose among the {len(view.clients)} clients of "
            f"`view.clients`, whose ids are {view.clients[0]} to {view.clients[-1]}; clients without samples and those "
            f"of federation.unseen are not among them."
        )
    return ids


def _as_integers(given: Any, where: str) -> Ints:
    """A list, tuple, set or array of whole numbers as an array."""
    try:
        values = np.asarray(sorted(given) if isinstance(given, set | frozenset) else given)
        whole = values.ndim == 1 and (values.dtype.kind in "iu" or not len(values))
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise Misconfigured(f"{where} {given!r:.80}; expected the ids of clients, such as [0, 3, 5].")
    return values.astype(np.int64)
