"""What travels and what is kept, in bytes, measured with one client of the quickstart in one round."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import FROM_PYTHON, complete_config
from fedblade.core.outcome import LocalResult, collect_client, train_client
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.core.state import ServerState
from fedblade.core.sums import Reduce, Sum, payload_bytes
from fedblade.core.tree import State, tree_bytes
from fedblade.data import as_dataset
from fedblade.presets.catalogue import read_config
from fedblade.runs import Setup, download_bytes, prepare

_ONE_CLIENT: Mapping[str, Any] = {
    "num_clients": 1, "clients_per_round": 1, "rounds": 1, "epochs": 1, "partition": "iid", "device": "cpu",
}  # fmt: skip
_WEIGHT = "weight"
_KEPT = {PERSONAL: "own parameters", BUFFERS: "own statistics"}


@dataclass(frozen=True)
class Payload:
    """Something that travels: its name, its size, and how the server joins it over clients.

    With `by_class` the size is that of a client that holds every class.
    """

    name: str
    bytes: int
    by_class: bool = False
    reduce: Reduce = "sum"


@dataclass(frozen=True)
class Extra:
    """An exchange besides the round: when it happens, with whom, and what travels down and up."""

    when: Literal["before_run", "after_round", "after_run"]
    clients: Literal["cohort", "all"]
    bytes_down: int
    up: tuple[Payload, ...]


@dataclass(frozen=True)
class Traffic:
    """What travels between the server and a client: down and up in each round, once, and in exchanges.

    Of the sums, those that carry the model's tensors for the first time, and its weight, are the model's; whatever
    repeats them or is no part of the model is the method's own. `deployed` says what leaves a client elsewhere.
    """

    down_model: int
    down_extra: tuple[Payload, ...]
    once: tuple[Payload, ...]
    up_model: tuple[Payload, ...]
    up_extra: tuple[Payload, ...]
    exchanges: tuple[Extra, ...] = ()
    deployed: str = ""

    @property
    def bytes_down(self) -> int:
        """Down in a client's first round."""
        return self.down_model + _total((*self.down_extra, *self.once))

    @property
    def bytes_up(self) -> int:
        """Up in a round."""
        return _total((*self.up_model, *self.up_extra))


@dataclass(frozen=True)
class Kept:
    """State between rounds by name, in bytes: the server's besides the model, and each client's."""

    server: Mapping[str, int]
    client: Mapping[str, int]


def set_up(method: str) -> Setup:
    """The quickstart with one client that holds two samples of every class."""
    labels = np.arange(20) % 10
    images = np.linspace(0, 1, 20 * 64, dtype=np.float32).reshape(20, 1, 8, 8)
    # The library's knobs, not the quickstart's.
    preset = {key: value for key, value in read_config("quickstart").items() if key not in ("methods", "seeds")}
    config = complete_config(apply_overrides(preset, {**_ONE_CLIENT, "method": method, "dataset": FROM_PYTHON}))
    return prepare(config, as_dataset((images, labels, images, labels)))


def measure(setup: Setup) -> tuple[Traffic, Kept]:
    """Do what a run of one round does, and note the sizes."""
    method, state = setup.method, setup.start
    state, before = _exchange(setup, state, None, "before_run")
    task, rate = setup.planner.task(0, 0), setup.config.optimizer.rate(0, 1)
    done = train_client(setup.problem, state, task, None, rate)
    up_model, up_extra = _split(setup, done)
    down = download_bytes(setup, state)
    traffic = Traffic(
        down_model=down.model,
        down_extra=tuple(Payload(*sent) for sent in down.server_state.items()),
        once=(Payload("fixed tensors", tree_bytes(state.fixed)),) if state.fixed and method.sums else (),
        up_model=up_model,
        up_extra=up_extra,
    )
    state = method.server(state, done.sums) if done.sums is not None and done.sums.trees else state
    state, after = _exchange(setup, state.replace(round=1), done.state, "after_round")
    state, last = _exchange(setup, state, done.state, "after_run")
    kept = Kept(
        server={name: tree_bytes(tree) for name, tree in state.extra.items()},
        client={_KEPT.get(name, name): tree_bytes(tree) for name, tree in done.state.items()},
    )
    exchanges = (*before, *after, *last)
    sends = bool(up_model or up_extra or any(each.up for each in exchanges))
    return replace(traffic, exchanges=exchanges, deployed=_deployed(sends=sends)), kept


def _deployed(*, sends: bool) -> str:
    """What leaves a client on another machine (engine `flower`)."""
    sums = "the sums above, " if sends else ""
    return (
        f"a client sends its number of samples per class and the shape of a sample once, then {sums}the totals of its "
        f"losses and the sums that metrics ask for; samples, labels and the client's state never leave it"
    )


def _exchange(setup: Setup, state: ServerState, own: State | None, when: str) -> tuple[ServerState, tuple[Extra, ...]]:
    """Carry the exchanges of one moment out."""
    made: list[Extra] = []
    for each in setup.method.exchanges:
        if each.when == when:
            sent = download_bytes(setup, state).for_exchange(each)
            done = collect_client(setup.problem, state, setup.planner.task(0, 0), own, each.sums)
            made.append(Extra(each.when, each.clients, sent, tuple(_payloads(setup, each.sums, done))))
            if done.sums is not None:
                state = each.server(state, done.sums)
    return state, tuple(made)


def _split(setup: Setup, done: LocalResult) -> tuple[tuple[Payload, ...], tuple[Payload, ...]]:
    """The payloads of a round: those of the model, and the method's own."""
    left = set(setup.problem.uploaded)
    model: list[Payload] = []
    extra: list[Payload] = []
    for payload in _payloads(setup, setup.method.sums, done):
        names = () if done.sums is None else done.sums[payload.name].keys()
        carries = left.issuperset(names) or (payload.name == _WEIGHT and bool(model))
        (model if carries else extra).append(payload)
        left -= set(names)
    return tuple(model), tuple(extra)


def _payloads(setup: Setup, declared: Iterable[Sum], done: LocalResult) -> Iterator[Payload]:
    """Sums that hold anything, with their size on the wire."""
    classes, width = setup.problem.network.num_classes, torch.finfo(setup.problem.samples.dtype).bits // 8
    for each in declared:
        if done.sums is not None and done.sums[each.name]:
            yield Payload(each.name, payload_bytes([each], done.sums, classes, width), each.by_class, each.reduce)


def _total(payloads: Iterable[Payload]) -> int:
    return sum(each.bytes for each in payloads)
