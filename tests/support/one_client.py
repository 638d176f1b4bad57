"""One client's part in what engines do with groups of clients."""

import torch

from fedblade.core.finite import refuse_non_finite_sums
from fedblade.core.one_client import OneClient
from fedblade.core.outcome import LocalResult, StepLog, adapt_clients
from fedblade.core.receive import personal_models
from fedblade.core.sums import Sums, contributions
from fedblade.core.tree import tree_map


def adapt_client(problem, server, task, state, lr, phases):
    """Train a client's personal model on `phases`; the result has the state that the client keeps."""
    (kept,) = adapt_clients(OneClient(problem), server, [task], [state], lr, phases)
    return LocalResult(None, kept, StepLog(), 0)


def personal_model(problem, server, state):
    """Parameters, statistics and fixed tensors of a client's personal model."""
    counts = torch.zeros(problem.network.num_classes, dtype=torch.int64)
    model = personal_models(OneClient(problem), server, [counts], [state])
    return model.params, model.buffers, model.fixed


def sums_of(declared, view, client):
    """The payload of one client; NaN and infinity raise an error."""
    chosen = tuple(declared)
    trees = contributions(chosen, view)
    refuse_non_finite_sums(trees, client, view.round)
    return Sums.over(chosen, {name: tree_map(lambda leaf: leaf[None], tree) for name, tree in trees.items()})
