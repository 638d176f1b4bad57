"""Local steps as functions of tensors: what a step is given, and what a program of it depends on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.gradient import step_gradient
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, Received
from fedblade.core.terms import StepGradient
from fedblade.core.work import Work
from fedblade.engines._capture import HIDDEN_ROUND


@dataclass(frozen=True)
class Steps:
    """What the steps of the same clients have in common: all but the batch."""

    clients: Clients
    received: Received
    work: Work
    model: LocalModel

    def gradient(self, batch: Batch) -> StepGradient:
        """The step as it is written."""
        return step_gradient(self.clients, self.received, self.work, batch, self.model)

    def tensors(self) -> tuple[list[Tensor], int, tuple[Any, ...]]:
        """All tensors, how many of them no step changes, and what a program depends on but the number of clients.

        The tensors that no step changes are the first.
        """
        leaves, key = list[Tensor](), list[Any]()
        _collect(self._received(), leaves, key, 1)
        _collect(self.received.server, leaves, key, 0)
        still = len(leaves)
        _collect(self._model(), leaves, key, 1)
        trained = {leaf.untyped_storage().data_ptr() for leaf in leaves[still:]}
        # A model in a client's state may be the one that trains.
        if any(leaf.untyped_storage().data_ptr() in trained for leaf in leaves[:still] if leaf.numel()):
            still = 0
        return leaves, still, (still, *key)

    def of(self, leaves: Iterator[Tensor]) -> "Steps":
        """The same steps of other tensors. Nothing in them can read the round and the learning rate."""
        tables = (self._received(), self.received.server, self._model())
        clients, server, model = (_with_leaves(table, leaves) for table in tables)
        trained = self.work.trained
        params = {name: leaf.detach().requires_grad_(name in trained) for name, leaf in model["params"].items()}
        received = replace(self.received, round=HIDDEN_ROUND, lr=HIDDEN_ROUND, server=server, **clients)
        return replace(self, received=received, model=LocalModel(params, model["buffers"], model["momentum"]))

    def _received(self) -> dict[str, Any]:
        """The tensors with a client axis that clients received."""
        return {name: getattr(self.received, name) for name in ("counts", "anchor", "buffers", "fixed", "client")}

    def _model(self) -> dict[str, Any]:
        """The tensors of the models, which steps change."""
        return {name: getattr(self.model, name) for name in ("params", "buffers", "momentum")}


def batch_tensors(batch: Batch) -> tuple[list[Tensor], tuple[Any, ...]]:
    """The tensors of a batch, and what a program depends on.

    They are parts of larger tables, with strides that differ from round to round. Contiguous tensors need no strides.
    """
    leaves, key = list[Tensor](), list[Any]()
    _collect(_table(batch), leaves, key, 1)
    return leaves, tuple(part if isinstance(part, str) else (part[0], part[2]) for part in key)


def batch_of(batch: Batch, leaves: Iterator[Tensor]) -> Batch:
    """A batch like the given one, of other tensors."""
    return _batch(_with_leaves(_table(batch), leaves))


def _table(batch: Batch) -> dict[str, Any]:
    parts = {name: getattr(batch, name) for name in ("indices", "draws", "noise", "mask")}
    table = {name: None if part is None else part.contiguous() for name, part in parts.items()}
    return table if batch.then is None else {**table, "then": _table(batch.then)}


def _batch(table: dict[str, Any]) -> Batch:
    then = _batch(table["then"]) if "then" in table else None
    return Batch(table["indices"], table["draws"], table["noise"], then, table["mask"])


def _collect(value: Any, leaves: list[Tensor], key: list[Any], axes: int) -> None:
    """Add the tensors of nested tables to `leaves`, and names, shapes behind the client axes and types to `key`."""
    if isinstance(value, Tensor):
        leaves.append(value)
        key.append((value.shape[axes:], value.stride(), value.dtype))
    elif isinstance(value, dict):
        for name, part in value.items():
            key.append(name)
            _collect(part, leaves, key, axes)


def _with_leaves(value: Any, leaves: Iterator[Tensor]) -> Any:
    """The same tables of other tensors, in order."""
    if isinstance(value, dict):
        return {name: _with_leaves(part, leaves) for name, part in value.items()}
    return next(leaves) if isinstance(value, Tensor) else value
