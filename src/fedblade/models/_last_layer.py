"""The last layer of a user's module, found by running it: which layer made the output, and the module without it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

_SOFTMAX: tuple[Callable[..., Tensor], ...] = (torch.softmax, torch.log_softmax)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer: where the layer is, what it was given and what it returned.

    A tensor's version rises when something changes the tensor in place.
    """

    path: str
    layer: nn.Module
    given: object
    returned: Tensor
    version: int

    @property
    def place(self) -> str:
        """Where a last layer is, in words."""
        return f"its last layer '{self.path}'" if self.path else "the module itself"

    def gave(self, tensor: object) -> bool:
        """Whether a tensor is what the layer returned, unchanged."""
        mine = self.returned
        return (
            isinstance(tensor, Tensor)
            and (tensor.data_ptr(), tensor.shape, tensor.stride()) == (mine.data_ptr(), mine.shape, mine.stride())
            and tensor._version == self.version
        )


@dataclass(frozen=True)
class Seen:
    """A forward pass: its output, the calls of layers without sublayers, and the linear layer that made the output.

    `linear` is None where the output is not what a linear layer returned. `softmax` says where the layers are that
    turn its output into probabilities; `inside` that the module's own code does that.
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
        """The last layer before the linear one, or of all if there is none; in words."""
        calls = self.calls if self.linear is None else self.calls[: self.calls.index(self.linear)]
        if not calls:
            return "the input"
        place = f"layer '{calls[-1].path}'" if calls[-1].path else "the module itself"
        return f"{place} ({type(calls[-1].layer).__name__})"


@torch.no_grad()
def look(module: nn.Module, example: Tensor) -> Seen:
    """Run a copy of a module on an example [1, …] twice over, and find the layer that made the output."""
    module = copy.deepcopy(module).to(example).eval()
    calls: list[Call] = []

    def note(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(layer: nn.Module, given: Any, returned: Any) -> None:
            if isinstance(returned, Tensor):
                calls.append(Call(path, layer, given[0] if given else None, returned, returned._version))

        return hook

    leaves = [(path, layer) for path, layer in module.named_modules() if not any(True for _ in layer.children())]
    hooks = [layer.register_forward_hook(note(path)) for path, layer in leaves]
    try:
        output = module(example.repeat_interleave(2, dim=0))
    finally:
        for hook in hooks:
            hook.remove()
    return _with_linear(Seen(output, calls))


def _with_linear(seen: Seen) -> Seen:
    """The same pass with the linear layer that made its output, if one did."""
    output, calls = seen.output, seen.calls
    linear = [call for call in calls if isinstance(call.layer, nn.Linear)]
    made = [call for call in linear if call.gave(output)]
    if made:
        return replace(seen, linear=made[-1])
    for last in (call for call in calls if isinstance(call.layer, nn.Softmax | nn.LogSoftmax) and call.gave(output)):
        for call in (call for call in linear if call.gave(last.given)):
            return replace(seen, linear=call, softmax=(last.path,))
    if linear and isinstance(output, Tensor) and linear[-1].returned.shape == output.shape:
        logits = linear[-1].returned
        if any(torch.allclose(function(logits, dim=-1), output) for function in _SOFTMAX):
            return replace(seen, linear=linear[-1], inside=True)
    return seen


def without_last(module: nn.Module, seen: Seen, example: Tensor) -> nn.Module | None:
    """A copy that returns what the linear layer was given; None if the layer cannot be left out."""
    call = seen.linear
    if call is None or seen.inside or sum(each.layer is call.layer for each in seen.calls) > 1:
        return None
    if not call.path:
        return nn.Identity()
    if shares_with(module, call.path) is not None:
        return None
    cut = copy.deepcopy(module)
    for path in (call.path, *seen.softmax):
        holder, _, name = path.rpartition(".")
        cut.get_submodule(holder).register_module(name, nn.Identity())
    found, given = look(cut, example).output, call.given
    same = isinstance(found, Tensor) and isinstance(given, Tensor) and found.dim() == 2 and torch.equal(found, given)
    return cut if same else None


def shares_with(module: nn.Module, path: str) -> str | None:
    """Another layer that has a parameter of the layer at `path`, or None; a head cannot stay tied to the body."""
    layer = module.get_submodule(path)
    own = {id(leaf) for leaf in layer.parameters()}
    for other, holder in module.named_modules():
        if holder is not layer and any(id(leaf) in own for leaf in holder.parameters(recurse=False)):
            return other or "the module itself"
    return None
