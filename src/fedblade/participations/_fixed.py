"""Cohorts that the user names."""

from dataclasses import replace

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import participations
from fedblade.participations._check import chosen_clients
from fedblade.participations._view import ParticipationView


@participations.register()
def fixed(view: ParticipationView, cohorts: list[int] | list[list[int]] = []) -> list[int]:  # noqa: B006 - a knob
    """The clients of `cohorts` in every round, or its lists in turn: [0, 3, 5], or [[0, 1], [2, 3]].

    The lists decide how many clients take part; `federation.clients_per_round` has no effect.
    """
    groups = [[client for client in cohorts if isinstance(client, int)]]
    groups = [group for group in cohorts if isinstance(group, list)] or groups
    if not all(groups):
        raise Misconfigured(
            "participation 'fixed' has no clients: set participation.cohorts, to a list such as [0, 3, 5] for every "
            "round, or to lists that take turns, such as [[0, 1], [2, 3]]."
        )
    # All lists are checked in the first round, so that no run stops at a list whose turn comes late.
    for turn, group in enumerate(groups if view.round == 0 else ()):
        chosen_clients("fixed", group, replace(view, round=turn))
    return groups[view.round % len(groups)]
