"""A body with a client axis: the body's graph, computed with the rules for layers."""

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
from fedblade.engines.layers import _on_gpu
from fedblade.engines.layers._base import RULES, Activation, Rule, Shared
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
    """Features of all clients in one pass. A body that cannot be traced is refused when this is made."""

    def __init__(self, body: nn.Module, stages: tuple[str, ...]) -> None:
        graph, self._ends = traced(body, stages)
        self._body = body
        modules = dict(body.named_modules())
        self._names = canonical(body)
        check(modules, graph, self._names)
        self._nodes = list(graph.nodes)
        self._layers = {node: self._layer(node, modules) for node in self._nodes if node.op == "call_module"}
        # A GPU has a kernel for normalisation and ReLU together; a CPU rectifies fewer numbers after pooling.
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
        on_gpu = _on_gpu.is_on_gpu(inputs)
        sizes = mask.sum(1, dtype=torch.int32) if on_gpu and mask is not None else None
        shared = Shared(inputs.shape[0], mask, training, sizes=sizes)
        fused = self._fused[on_gpu]
        special = dict.fromkeys(fused.values(), replace(shared, relu=True))
        for node in self._deferred[on_gpu]:
            special[node] = replace(special.get(node, shared), defer=True)
        known: dict[fx.Node, Any] = {}
        tapped: dict[fx.Node, Tensor] = {}
        result = Activation(inputs)
        for node in self._nodes:
            if node in fused:
                known[node] = known[node.all_input_nodes[0]]
            elif node in self._layers:
                known[node] = self._run_layer(node, known, tensors, special.get(node, shared))
            elif node.op == "placeholder":
                known[node] = Activation(inputs)
            elif node.op == "output":
                result = fx.map_arg(node.args[0], known.__getitem__)
            else:
                known[node] = self._run(node, known, tensors, shared)
            if tap != "none" and node in self._ends:
                # Now, because a layer that works in place may follow.
                tapped[node] = _pooled(known[node], shared, tap)
        return result.split(shared.clients), tuple(tapped[end] for end in self._ends if end in tapped)

    def _run(self, node: fx.Node, known: Mapping[fx.Node, Any], tensors: Tree, shared: Shared) -> Any:
        args = fx.map_arg(node.args, known.__getitem__)
        kwargs = fx.map_arg(node.kwargs, known.__getitem__)
        match node.op:
            case "get_attr":
                constant = constant_of(self._body, node)
                return Activation(tensors[self._names[str(node.target)]]) if constant is None else constant
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
        names = tuple((leaf_name, self._names[f"{name}.{leaf_name}"]) for leaf_name, _ in tensors)
        source = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        return _Layer(module, RULES.get(type(module)), names, source if isinstance(source, fx.Node) else None)

    def _run_layer(self, node: fx.Node, known: Mapping[fx.Node, Any], tensors: Tree, shared: Shared) -> Any:
        layer = self._layers[node]
        layer_tensors = {leaf_name: tensors[name] for leaf_name, name in layer.names}
        source = None if layer.source is None else known[layer.source]
        if layer.rule is not None and isinstance(source, Activation):
            return layer.rule(layer.module, layer_tensors, source, shared)

        def one_client(client_tensors: Tree, *values: Any, **named: Any) -> Any:
            return torch.func.functional_call(layer.module, client_tensors, values, named)

        args = fx.map_arg(node.args, known.__getitem__)
        kwargs = fx.map_arg(node.kwargs, known.__getitem__)
        map_clients = _one_by_one if isinstance(layer.module, nn.RNNBase | nn.RNNCellBase) else _by_vmap
        activations = {leaf_name: Activation(leaf) for leaf_name, leaf in layer_tensors.items()}
        return map_clients(one_client, (activations, *args), kwargs, shared)


@dataclass(frozen=True)
class _Layer:
    """A module of the graph: its rule, the names of its tensors in the module and in trees, and its input."""

    module: nn.Module
    rule: Rule | None
    names: tuple[tuple[str, str], ...]
    source: fx.Node | None


def _apply(
    name: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared
) -> Any:
    """A function of the graph: called on folded maps where that is safe, otherwise under vmap on split maps."""
    activations = [
        leaf for leaf in pytree.tree_leaves((args, kwargs), is_leaf=_is_activation) if isinstance(leaf, Activation)
    ]
    if name in _SAFE and all(activation.folded for activation in activations) and activations:
        plain_args, plain_kwargs = pytree.tree_map(_folded, (args, kwargs), is_leaf=_is_activation)
        return Activation(function(*plain_args, **plain_kwargs), folded=True)
    if (
        name == "mean"
        and len(activations) == 1
        and activations[0].folded
        and (args[1:] in (((2, 3),), ([2, 3],)) and not kwargs)
    ):
        means = activations[0].value.mean((2, 3))
        return Activation(means.reshape(len(means), shared.clients, -1).transpose(0, 1))
    if name in ("flatten", torch.flatten) and args[1:] == (1,) and len(activations) == 1 and not kwargs:
        return Activation(args[0].flat(shared.clients))
    if not activations:
        return function(*args, **kwargs)
    # Split maps have another order in memory than the maps of a single client, so that a view may fail.
    return _by_vmap(torch.Tensor.reshape if name == "view" else function, args, kwargs, shared)


def _by_vmap(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared) -> Any:
    leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_activation)
    split = [leaf.split(shared.clients) if isinstance(leaf, Activation) else leaf for leaf in leaves]
    axes = [0 if isinstance(leaf, Activation) else None for leaf in leaves]
    results: list[Any] = []

    def one(*values: Any) -> tuple[Tensor, ...]:
        inner_args, inner_kwargs = pytree.tree_unflatten(list(values), spec)
        results.append(function(*inner_args, **inner_kwargs))
        return tuple(leaf for leaf in pytree.tree_leaves(results[0]) if isinstance(leaf, Tensor))

    # vmap would call the other kernels of attention once for each client.
    with sdpa_kernel(SDPBackend.MATH):
        outputs = iter(torch.func.vmap(one, in_dims=tuple(axes))(*split))
    # Shapes and the like are the same for every client.
    return pytree.tree_map(lambda leaf: Activation(next(outputs)) if isinstance(leaf, Tensor) else leaf, results[0])


def _one_by_one(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared) -> Any:
    """One client after another, for functions that vmap has no rule for."""

    def call(client: int) -> Any:
        client_args, client_kwargs = pytree.tree_map(
            lambda leaf: leaf.split(shared.clients)[client] if _is_activation(leaf) else leaf,
            (args, kwargs),
            is_leaf=_is_activation,
        )
        return function(*client_args, **client_kwargs)

    outputs = [call(client) for client in range(shared.clients)]
    return pytree.tree_map(lambda *leaves: Activation(torch.stack(leaves)), *outputs)


def _is_activation(value: Any) -> bool:
    return isinstance(value, Activation)


def _folded(value: Any) -> Any:
    return value.fold() if isinstance(value, Activation) else value


def _pooled(activation: Activation, shared: Shared, tap: Tap) -> Tensor:
    values = activation.split(shared.clients)
    values = values.relu() if tap == "relu" else values
    return values.flatten(3).mean(3) if values.dim() > 3 else values
