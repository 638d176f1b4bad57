"""The last layer of a user's module: which layer made the output of a forward pass, and the module without it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

_SOFTMAX: tuple[Callable[..., Tensor], ...] = (torch.softmax, torch.log_softmax)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer: the path of the layer, its input and its output.

    `version` is torch's counter of changes in place of the output.
    """

    path: str
    layer: nn.Module
    given: object
    returned: Tensor
    version: int

    @property
    def place(self) -> str:
        """The last layer in words, for messages."""
        return f"its last layer '{self.path}'" if self.path else "the module itself"

    def returned_it(self, tensor: object) -> bool:
        """Whether `tensor` is the output of the layer, unchanged."""
        output = self.returned
        return (
            isinstance(tensor, Tensor)
            and (tensor.data_ptr(), tensor.shape, tensor.stride()) == (output.data_ptr(), output.shape, output.stride())
            and tensor._version == self.version
        )


@dataclass(frozen=True)
class Trace:
    """A forward pass: its output, the calls of layers without sublayers, and the linear layer that made the output.

    `linear` is None if no linear layer made the output. `softmax` are the paths of layers that turn its output into
    probabilities; `inside` says that the code of the module does so.
    """

    output: object
    calls: Sequence[Call] = ()
    linear: Call | None = None
    softmax: tuple[str, ...] = ()
    inside: bool = field(default=False)

    @property
    def width(self) -> int | None:
        """Numbers per sample, if the output is a tensor [batch, width]."""
        return self.output.shape[1] if isinstance(self.output, Tensor) and self.output.dim() == 2 else None

    @property
    def before(self) -> str:
        """The layer before the linear one, or the last layer if there is no linear one; in words, for messages."""
        calls = self.calls if self.linear is None else self.calls[: self.calls.index(self.linear)]
        if not calls:
            return "the input"
        place = f"layer '{calls[-1].path}'" if calls[-1].path else "the module itself"
        return f"{place} ({type(calls[-1].layer).__name__})"


@torch.no_grad()
def trace_forward(module: nn.Module, example: Tensor) -> Trace:
    """Run a copy of a module on a batch of two equal examples [1, …], and find the layer that made the output."""
    module = copy.deepcopy(module).to(example).eval()
    calls: list[Call] = []

    def recorder(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(layer: nn.Module, given: Any, returned: Any) -> None:
            if isinstance(returned, Tensor):
                calls.append(Call(path, layer, given[0] if given else None, returned, returned._version))

        return hook

    leaves = [(path, layer) for path, layer in module.named_modules() if not any(True for _ in layer.children())]
    hooks = [layer.register_forward_hook(recorder(path)) for path, layer in leaves]
    try:
        output = module(example.repeat_interleave(2, dim=0))
    finally:
        for hook in hooks:
            hook.remove()
    return _with_linear(Trace(output, calls))


def _with_linear(trace: Trace) -> Trace:
    """The same pass with the linear layer that made its output, if there is one."""
    output, calls = trace.output, trace.calls
    linear = [call for call in calls if isinstance(call.layer, nn.Linear)]
    made = [call for call in linear if call.returned_it(output)]
    if made:
        return replace(trace, linear=made[-1])
    for last in (
        call for call in calls if isinstance(call.layer, nn.Softmax | nn.LogSoftmax) and call.returned_it(output)
    ):
        for call in (call for call in linear if call.returned_it(last.given)):
            return replace(trace, linear=call, softmax=(last.path,))
    if linear and isinstance(output, Tensor) and linear[-1].returned.shape == output.shape:
        logits = linear[-1].returned
        if any(torch.allclose(function(logits, dim=-1), output) for function in _SOFTMAX):
            return replace(trace, linear=linear[-1], inside=True)
    return trace


def without_last(module: nn.Module, trace: Trace, example: Tensor) -> nn.Module | None:
    """A copy of the module that returns the input of the linear layer; None if the layer cannot be left out."""
    call = trace.linear
    if call is None or trace.inside or sum(other.layer is call.layer for other in trace.calls) > 1:
        return None
    if not call.path:
        return nn.Identity()
    if shares_with(module, call.path) is not None:
        return None
    cut = copy.deepcopy(module)
    for path in (call.path, *trace.softmax):
        parent, _, name = path.rpartition(".")
        cut.get_submodule(parent).register_module(name, nn.Identity())
    output, given = trace_forward(cut, example).output, call.given
    same = isinstance(output, Tensor) and isinstance(given, Tensor) and output.dim() == 2 and torch.equal(output, given)
    return cut if same else None


def shares_with(module: nn.Module, path: str) -> str | None:
    """Another layer that shares a parameter with the layer at `path`, or None; a head and a body share nothing."""
    layer = module.get_submodule(path)
    ids = {id(leaf) for leaf in layer.parameters()}
    for other_path, other in module.named_modules():
        if other is not layer and any(id(leaf) in ids for leaf in other.parameters(recurse=False)):
            return other_path or "the module itself"
    return None
