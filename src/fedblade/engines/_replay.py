"""Functions of tensors that a GPU captures once for each shape and then replays, so that calls need no host work."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedblade.engines._capture import Captures, aside
from fedblade.engines._group import is_common


@dataclass
class Replays:
    """Captures by key and shapes. What a call returns is overwritten by the next call of any of them."""

    _known: dict[Hashable, "_Capture"] = field(default_factory=dict)
    _captures: Captures = field(default_factory=Captures)

    def call(self, key: Hashable, function: Callable[[Any], Any], inputs: Any) -> Any:
        """The function's value at a tree of inputs; equal keys must mean equal functions."""
        leaves, spec = pytree.tree_flatten(inputs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        full = (key, str(spec), tuple((leaf.shape, leaf.dtype, is_common(leaf)) for leaf in tensors))
        if full not in self._known:
            self._known[full] = _capture(function, leaves, spec, self._captures)
        capture = self._known[full]
        torch._foreach_copy_(capture.inputs, [_stored(leaf) for leaf in tensors])
        again = capture.work()
        return again if capture.outputs is None else capture.outputs


@dataclass(frozen=True)
class _Capture:
    """Where inputs are read, the work, what it gives (None: what a call returns), and the function, kept alive."""

    inputs: list[Tensor]
    work: Callable[[], Any]
    outputs: Any
    function: Callable[[Any], Any]


def _stored(leaf: Tensor) -> Tensor:
    """What of a tensor is in memory: a view that repeats one row is that row."""
    return leaf[:1] if is_common(leaf) else leaf


def _capture(function: Callable[[Any], Any], leaves: list[Any], spec: pytree.TreeSpec, captures: Captures) -> _Capture:
    inputs = [_stored(leaf).clone() for leaf in leaves if isinstance(leaf, Tensor)]
    own = iter(inputs)
    whole = [next(own).expand(leaf.shape) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    held = pytree.tree_unflatten(whole, spec)
    aside(lambda: function(held))
    work, outputs = captures.of(lambda: function(held))
    return _Capture(inputs, work, outputs, function)
