"""A body with a client axis: its graph, interpreted with the rules for layers."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from fedblade.core.errors import Unsupported
from fedblade.core.tree import Tree
from fedblade.core.views import Tap
from fedblade.engines.layers._base import RULES, Lane, Rule, Shared
from fedblade.engines.layers._graph import (
    canonical,
    check,
    constant_of,
    norm_before_depthwise,
    norm_before_pooling,
    relu_after_norm,
    relu_after_pooling,
    traced,
)

_SAFE = {
    operator.add, operator.mul, operator.sub, operator.iadd, operator.imul, torch.add, torch.mul, torch.relu,
    functional.relu, functional.relu6, functional.silu, functional.gelu, torch.sigmoid, torch.tanh,
    "relu", "relu_", "add", "add_", "mul", "sigmoid", "tanh",
}  # fmt: skip
"""Functions and methods that treat every number alike, so that folded maps may stay folded."""


class StackedBody:
    """Features of all clients in one pass. Refuses, when it is made, a body that has no graph."""

    def __init__(self, body: nn.Module, stages: tuple[str, ...]) -> None:
        graph, self._ends = traced(body, stages)
        self._body = body
        modules = dict(body.named_modules())
        self._names = canonical(body)
        check(modules, graph, self._names)
        self._nodes = list(graph.nodes)
        self._layers = {node: self._layer(node, modules) for node in self._nodes if node.op == "call_module"}
        # On a GPU one kernel does normalisation and activation; elsewhere there is less to do behind a pooling layer.
        after_norm = relu_after_norm(graph, modules, self._ends)
        after_pooling = relu_after_pooling(graph, modules, self._ends)
        self._fused = {True: after_norm, False: after_norm | after_pooling}
        self._deferred = {
            True: norm_before_depthwise(graph, modules, self._ends, after_norm),
            False: norm_before_pooling(graph, modules, self._ends, after_pooling),
        }

    def __call__(
        self, params: Tree, buffers: Tree, inputs: Tensor, mask: Tensor | None, *, training: bool, tap: Tap
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [clients, batch, dim] of inputs [clients, batch, …], and tapped stages [clients, batch, width]."""
        if self._body.training != training:
            self._body.train(training)
        tensors = {**params, **buffers}
        on_gpu = inputs.is_cuda
        sizes = mask.sum(1, dtype=torch.int32) if on_gpu and mask is not None else None
        shared = Shared(inputs.shape[0], mask, training, sizes=sizes)
        fused = self._fused[on_gpu]
        special = dict.fromkeys(fused.values(), replace(shared, relu=True))
        for node in self._deferred[on_gpu]:
            special[node] = replace(special.get(node, shared), defer=True)
        known: dict[fx.Node, Any] = {}
        tapped: dict[fx.Node, Tensor] = {}
        result = Lane(inputs)
        for node in self._nodes:
            if node in fused:
                known[node] = known[node.all_input_nodes[0]]
            elif node in self._layers:
                known[node] = self._run_layer(node, known, tensors, special.get(node, shared))
            elif node.op == "placeholder":
                known[node] = Lane(inputs)
            elif node.op == "output":
                result = fx.map_arg(node.args[0], known.__getitem__)
            else:
                known[node] = self._run(node, known, tensors, shared)
            if tap != "none" and node in self._ends:
                # At once, because a layer that works in place may follow.
                tapped[node] = _pooled(known[node], shared, tap)
        return result.split(shared.clients), tuple(tapped[end] for end in self._ends if end in tapped)

    def _run(self, node: fx.Node, known: Mapping[fx.Node, Any], tensors: Tree, shared: Shared) -> Any:
        args = fx.map_arg(node.args, known.__getitem__)
        kwargs = fx.map_arg(node.kwargs, known.__getitem__)
        match node.op:
            case "get_attr":
                constant = constant_of(self._body, node)
                return Lane(tensors[self._names[str(node.target)]]) if constant is None else constant
            case "call_method":
                return _apply(str(node.target), getattr(torch.Tensor, str(node.target)), args, kwargs, shared)
            case _:
                function = node.target
                if isinstance(function, str):
                    raise Unsupported(f"the model's graph has a node of kind {node.op}")
                return _apply(function, function, args, kwargs, shared)

    def _layer(self, node: fx.Node, modules: Mapping[str, nn.Module]) -> "_Layer":
        name = str(node.target)
        module = modules[name]
        tensors = (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
        names = tuple((each, self._names[f"{name}.{each}"]) for each, _ in tensors)
        source = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        return _Layer(module, RULES.get(type(module)), names, source if isinstance(source, fx.Node) else None)

    def _run_layer(self, node: fx.Node, known: Mapping[fx.Node, Any], tensors: Tree, shared: Shared) -> Any:
        layer = self._layers[node]
        own = {each: tensors[name] for each, name in layer.names}
        given = None if layer.source is None else known[layer.source]
        if layer.rule is not None and isinstance(given, Lane):
            return layer.rule(layer.module, own, given, shared)

        def plain(mine: Tree, *values: Any, **named: Any) -> Any:
            return torch.func.functional_call(layer.module, mine, values, named)

        args = fx.map_arg(node.args, known.__getitem__)
        kwargs = fx.map_arg(node.kwargs, known.__getitem__)
        apart = _one_by_one if isinstance(layer.module, nn.RNNBase | nn.RNNCellBase) else _by_vmap
        return apart(plain, ({each: Lane(leaf) for each, leaf in own.items()}, *args), kwargs, shared)


@dataclass(frozen=True)
class _Layer:
    """A module of the graph: its rule, if it has one, its tensors' own names and those in the trees, and its input."""

    module: nn.Module
    rule: Rule | None
    names: tuple[tuple[str, str], ...]
    source: fx.Node | None


def _apply(
    name: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared
) -> Any:
    """A function of the graph: as it is on folded maps where that is safe, else under vmap on split ones."""
    lanes = [each for each in pytree.tree_leaves((args, kwargs), is_leaf=_is_lane) if isinstance(each, Lane)]
    if name in _SAFE and all(lane.folded for lane in lanes) and lanes:
        plain_args, plain_kwargs = pytree.tree_map(_folded, (args, kwargs), is_leaf=_is_lane)
        return Lane(function(*plain_args, **plain_kwargs), folded=True)
    if name == "mean" and len(lanes) == 1 and lanes[0].folded and (args[1:] in (((2, 3),), ([2, 3],)) and not kwargs):
        means = lanes[0].value.mean((2, 3))
        return Lane(means.reshape(len(means), shared.clients, -1).transpose(0, 1))
    if name in ("flatten", torch.flatten) and args[1:] == (1,) and len(lanes) == 1 and not kwargs:
        return Lane(args[0].flat(shared.clients))
    if not lanes:
        return function(*args, **kwargs)
    # Split maps do not lie in memory as a client's own would.
    return _by_vmap(torch.Tensor.reshape if name == "view" else function, args, kwargs, shared)


def _by_vmap(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared) -> Any:
    leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_lane)
    split = [each.split(shared.clients) if isinstance(each, Lane) else each for each in leaves]
    axes = [0 if isinstance(each, Lane) else None for each in leaves]
    said: list[Any] = []

    def one(*values: Any) -> tuple[Tensor, ...]:
        inner_args, inner_kwargs = pytree.tree_unflatten(list(values), spec)
        said.append(function(*inner_args, **inner_kwargs))
        return tuple(each for each in pytree.tree_leaves(said[0]) if isinstance(each, Tensor))

    # Attention has kernels that vmap would call once for each client.
    with sdpa_kernel(SDPBackend.MATH):
        outputs = iter(torch.func.vmap(one, in_dims=tuple(axes))(*split))
    # Shapes and the like are the same for every client.
    return pytree.tree_map(lambda each: Lane(next(outputs)) if isinstance(each, Tensor) else each, said[0])


def _one_by_one(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared) -> Any:
    """What vmap has no rule for: a client after the other."""

    def of(client: int) -> Any:
        mine = pytree.tree_map(
            lambda each: each.split(shared.clients)[client] if _is_lane(each) else each,
            (args, kwargs),
            is_leaf=_is_lane,
        )
        return function(*mine[0], **mine[1])

    outputs = [of(client) for client in range(shared.clients)]
    return pytree.tree_map(lambda *each: Lane(torch.stack(each)), *outputs)


def _is_lane(value: Any) -> bool:
    return isinstance(value, Lane)


def _folded(value: Any) -> Any:
    return value.fold() if isinstance(value, Lane) else value


def _pooled(lane: Lane, shared: Shared, tap: Tap) -> Tensor:
    values = lane.split(shared.clients)
    values = values.relu() if tap == "relu" else values
    return values.flatten(3).mean(3) if values.dim() > 3 else values
