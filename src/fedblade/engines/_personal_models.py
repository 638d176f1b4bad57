"""The personal models of many clients, with a client axis."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.passes import PassModel
from fedblade.core.problem import Problem, personal_model
from fedblade.core.state import ServerState
from fedblade.core.tree import State, Tree
from fedblade.engines._group import with_client_axis
from fedblade.engines.base import MeasuredClient


def personal_models(
    problem: Problem, server: ServerState, clients: Sequence[MeasuredClient], states: Sequence[State | None]
) -> PassModel:
    """The clients' personal models, made from the states that they keep (`states`, on the device).

    A client without a state has the initial one.
    """
    kept = [state or {} for state in states]
    models = [personal_model(problem, server, state) for state in states]
    common = (server.params, server.buffers, server.fixed)
    params, buffers, fixed = (_stack(tree, [model[part] for model in models]) for part, tree in enumerate(common))
    start = {name: init(problem.start) for name, init in problem.method.client_state.items()}
    return PassModel(
        params,
        buffers,
        fixed,
        counts=torch.stack([client.counts for client in clients]),
        server=server.extra,
        client={name: with_client_axis(tree, [state.get(name, {}) for state in kept]) for name, tree in start.items()},
        logits=problem.method.own.logits,
    )


def _stack(common: Tree, trees: Sequence[Mapping[str, Tensor]]) -> Tree:
    """The trees with a client axis, which is a view where every client has the server's tensor."""
    different = [{name: leaf for name, leaf in tree.items() if leaf is not common[name]} for tree in trees]
    return with_client_axis(common, different)
