"""The own models of many clients, with a client axis."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.passes import PassModel
from fedblade.core.problem import Problem, own_model
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree
from fedblade.engines._group import with_client_axis
from fedblade.engines.base import Holder


def own_models(
    problem: Problem, server: ServerState, holders: Sequence[Holder], states: Sequence[State | None]
) -> PassModel:
    """Clients as they are measured, from what they keep (`states`, on the device); newcomers have their first state."""
    kept = [state or {} for state in states]
    models = [own_model(problem, server, state) for state in states]
    common = (server.params, server.buffers, server.fixed)
    params, buffers, fixed = (_stacked(tree, [model[part] for model in models]) for part, tree in enumerate(common))
    start = {name: init(problem.start) for name, init in problem.method.client_state.items()}
    return PassModel(
        params,
        buffers,
        fixed,
        client={name: with_client_axis(tree, [each.get(name, {}) for each in kept]) for name, tree in start.items()},
        counts=torch.stack([holder.counts for holder in holders]),
        server=server.extra,
        logits=problem.method.own.logits,
    )


def _stacked(common: Tree, trees: Sequence[Mapping[str, Tensor]]) -> Tree:
    """A client axis; a view where everyone has the server's tensor."""
    own = [{name: leaf for name, leaf in tree.items() if leaf is not common[name]} for tree in trees]
    return with_client_axis(common, own)
