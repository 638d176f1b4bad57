"""A local step as a function of tensors, in nested tables: what it is given, and what a program of it depends on."""

from collections.abc import Iterator, Sequence
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
class Step:
    """A step: what it reads and changes, and what it does with that."""

    clients: Clients
    received: Received
    work: Work
    batch: Batch
    model: LocalModel

    def ordinary(self) -> StepGradient:
        """The step as it is written."""
        return step_gradient(self.clients, self.received, self.work, self.batch, self.model)

    def tensors(self) -> tuple[list[Tensor], tuple[Any, ...]]:
        """All tensors of the step, and what a program of it depends on but the number of clients."""
        key: list[Any] = [id(self.work.phase)]
        return [*_leaves(self._of_clients(), key, 1), *_leaves(self.received.server, key, 0)], tuple(key)

    def of(self, leaves: Sequence[Tensor]) -> "Step":
        """The same step of other tensors. Nothing in it can read the round and the learning rate."""
        remaining = iter(leaves)
        clients, server = (_with_leaves(table, remaining) for table in (self._of_clients(), self.received.server))
        trained = self.work.trained
        params = {name: leaf.detach().requires_grad_(name in trained) for name, leaf in clients["params"].items()}
        parts = {name: clients[name] for name in ("counts", "anchor", "buffers", "fixed", "client")}
        received = replace(self.received, round=HIDDEN_ROUND, lr=HIDDEN_ROUND, server=server, **parts)
        model = LocalModel(params, clients["statistics"], clients["momentum"])
        return replace(self, received=received, batch=_batch(clients["batch"]), model=model)

    def _of_clients(self) -> dict[str, Any]:
        """All tensors with a client axis."""
        received, model = self.received, self.model
        return {
            "counts": received.counts, "anchor": received.anchor, "buffers": received.buffers,
            "fixed": received.fixed, "client": received.client, "params": model.params,
            "statistics": model.buffers, "momentum": model.momentum, "batch": _table(self.batch),
        }  # fmt: skip


def _table(batch: Batch) -> dict[str, Any]:
    """The tensors of a batch. They are parts of larger tables, with strides that differ from round to round."""
    parts = {name: getattr(batch, name) for name in ("indices", "draws", "noise", "mask")}
    table = {name: part if part is None else part.contiguous() for name, part in parts.items()}
    return table if batch.then is None else {**table, "then": _table(batch.then)}


def _batch(table: dict[str, Any]) -> Batch:
    then = _batch(table["then"]) if "then" in table else None
    return Batch(table["indices"], table["draws"], table["noise"], then, table["mask"])


def _leaves(value: Any, key: list[Any], axes: int) -> Iterator[Tensor]:
    """The tensors of nested tables; all that a program depends on but the number of clients is added to the key."""
    if isinstance(value, Tensor):
        key.append((value.shape[axes:], value.stride(), value.dtype))
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            key.append(name)
            yield from _leaves(part, key, axes)


def _with_leaves(value: Any, leaves: Iterator[Tensor]) -> Any:
    """The same tables of other tensors, in order."""
    if isinstance(value, dict):
        return {name: _with_leaves(part, leaves) for name, part in value.items()}
    return next(leaves) if isinstance(value, Tensor) else value
