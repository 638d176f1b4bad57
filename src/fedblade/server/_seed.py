"""Randomness of server steps: the run's seed is server state, so that a resumed run draws the same numbers."""

import torch

from fedblade.core.method import InitView
from fedblade.core.state import ServerState
from fedblade.core.streams import Stream, Streams
from fedblade.core.tree import Tree


def run_seed(view: InitView) -> Tree:
    """The seed of the run, for the server state `seed`. Clients must not see it: keep it out of `broadcast`."""
    return {"value": torch.tensor(view.streams.seed, dtype=torch.int64)}


def server_generator(state: ServerState) -> torch.Generator:
    """The generator of this round's server step, on the CPU."""
    return Streams(int(state.extra["seed"]["value"])).torch(Stream.SERVER, state.round)
