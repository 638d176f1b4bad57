"""The graph of a body: the ends of its stages, the names of its tensors, and what a graph must not have."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from fedblade.core.errors import Unsupported
from fedblade.engines.layers._base import RULES
from fedblade.engines.layers._norm_pool import is_plain
from fedblade.engines.layers._on_gpu import is_depthwise
from fedblade.engines.layers._sequence import check_embedding, check_lstm

_DRAWS = ("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "bernoulli", "bernoulli_", "rrelu")
_DRAWING = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)


class _Tracer(fx.Tracer):
    """Traces down to the layers that have a rule, and remembers where the stages end."""

    def __init__(self, stages: tuple[str, ...]) -> None:
        super().__init__()
        self._stages = stages
        self.ends: list[fx.Node] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in RULES or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        outputs = super().call_module(m, forward, args, kwargs)
        name = self.path_of_module(m)
        if name in self._stages and isinstance(outputs, fx.Proxy):
            self.ends.append(outputs.node)
        return outputs


def traced(body: nn.Module, stages: tuple[str, ...]) -> tuple[fx.Graph, list[fx.Node]]:
    """The body's graph and the ends of its stages; a body must do the same in training and in evaluation."""
    graphs: list[tuple[fx.Graph, list[fx.Node]]] = []
    training_before = body.training
    try:
        for training in (False, True):
            tracer = _Tracer(stages)
            body.train(training)
            graphs.append((tracer.trace(body), tracer.ends))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise Unsupported(f"the model's graph cannot be traced: {reason}") from error
    finally:
        body.train(training_before)
    if not _are_equal(body, graphs[0][0], graphs[1][0]):
        raise Unsupported("the model's own code computes something else in training than in evaluation, or draws")
    return graphs[1]


def _are_equal(body: nn.Module, first: fx.Graph, second: fx.Graph) -> bool:
    """Whether two graphs are equal. Tensors made while tracing have other names, but must have the same values."""
    texts = [re.sub(r"_tensor_constant\d+", "constant", str(graph)) for graph in (first, second)]
    pairs = zip(*([constant_of(body, node) for node in graph.nodes] for graph in (first, second)), strict=False)
    return texts[0] == texts[1] and all(a is b or torch.equal(a, b) for a, b in pairs if a is not None)


def constant_of(body: nn.Module, node: fx.Node) -> Any:
    """A tensor that the body's code made while it was traced, or None."""
    made = node.op == "get_attr" and "_tensor_constant" in str(node.target)
    return operator.attrgetter(str(node.target))(body) if made else None


def canonical(body: nn.Module) -> dict[str, str]:
    """The name of each tensor in trees; tied tensors have the name of the first."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    pairs = (*body.named_parameters(remove_duplicate=False), *body.named_buffers(remove_duplicate=False))
    for name, leaf in pairs:
        names[name] = f"body.{first.setdefault(id(leaf), name)}"
    return names


def relu_after_norm(
    graph: fx.Graph, modules: Mapping[str, nn.Module], ends: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Each ReLU that is the only reader of a normalisation layer, and that layer: one pass computes both."""
    pairs = _neighbours(graph, modules, ends)
    return {after: node for node, after, kinds in pairs if kinds == (nn.BatchNorm2d, nn.ReLU)}


def relu_after_pooling(
    graph: fx.Graph, modules: Mapping[str, nn.Module], ends: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Each ReLU that only a max-pooling layer reads, and that layer: after pooling there are fewer numbers to rectify.

    The largest value of a window is the same either way, and so is the position in the window that has a gradient.
    """
    pairs = _neighbours(graph, modules, ends)
    poolings = {node: after for node, after, kinds in pairs if kinds == (nn.ReLU, nn.MaxPool2d)}
    # A layer behind the pooling that works in place would destroy what the ReLU keeps for its gradient.
    return {node: pool for node, pool in poolings.items() if not any(_in_place(user, modules) for user in pool.users)}


def _in_place(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node may change its input."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = getattr(node.target, "__name__", str(node.target))
    return name.endswith("_") or name in ("iadd", "imul", "isub") or bool(node.kwargs.get("inplace", False))


def norm_before_depthwise(
    graph: fx.Graph, modules: Mapping[str, nn.Module], ends: Sequence[fx.Node], fused: Mapping[fx.Node, fx.Node]
) -> frozenset[fx.Node]:
    """Normalisation layers whose output, with or without a ReLU, only one depthwise convolution reads."""
    pairs = _neighbours(graph, modules, ends)
    sources = [fused.get(node, node) for node, after, _ in pairs if is_depthwise(modules[str(after.target)])]
    return frozenset(node for node in sources if type(modules.get(str(node.target))) is nn.BatchNorm2d)


def norm_before_pooling(
    graph: fx.Graph, modules: Mapping[str, nn.Module], ends: Sequence[fx.Node], fused: Mapping[fx.Node, fx.Node]
) -> frozenset[fx.Node]:
    """Normalisation layers whose output only one plain max-pooling layer reads; the pooling may include a ReLU."""
    norms: set[fx.Node] = set()
    for node, after, kinds in _neighbours(graph, modules, ends):
        pool = fused.get(after, after)
        if kinds[0] is nn.BatchNorm2d and is_plain(modules[str(pool.target)]):
            norms.add(node)
    return frozenset(norms)


def _neighbours(
    graph: fx.Graph, modules: Mapping[str, nn.Module], ends: Sequence[fx.Node]
) -> Iterator[tuple[fx.Node, fx.Node, tuple[type, type]]]:
    """Layers whose output only one other layer reads and no term taps, that layer, and the types of both."""
    for node in graph.nodes:
        after = next(iter(node.users), node)
        if len(node.users) == 1 and node.op == after.op == "call_module" and node not in ends:
            yield node, after, (type(modules[str(node.target)]), type(modules[str(after.target)]))


def check(modules: Mapping[str, nn.Module], graph: fx.Graph, names: Mapping[str, str]) -> None:
    """Refuse layers whose random draws or statistics would mix clients."""
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        for part in () if module is None else module.modules():
            _check_layer(part)
        name = getattr(node.target, "__name__", str(node.target))
        if node.op in ("call_function", "call_method") and ("dropout" in name or name in _DRAWS):
            raise Unsupported(f"the model calls {name}, which draws for one client at a time")
        if node.op == "call_function" and name == "batch_norm":
            raise Unsupported("the model calls batch_norm itself, whose statistics would take in padding")
        if node.op == "get_attr" and str(node.target) not in names and "_tensor_constant" not in str(node.target):
            raise Unsupported(f"the model's tensor {node.target} is neither a parameter nor a buffer")


def _check_layer(layer: nn.Module) -> None:
    rate = getattr(layer, "p" if isinstance(layer, nn.modules.dropout._DropoutNd) else "dropout", 0)
    if (isinstance(layer, _DRAWING) and rate > 0) or isinstance(layer, nn.RReLU):
        raise Unsupported(f"the model has {type(layer).__name__} with random draws, made for one client at a time")
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        if layer.momentum is None:
            raise Unsupported("the model's BatchNorm keeps cumulative means, which differ between clients")
        if type(layer) not in RULES:
            raise Unsupported(f"the model has {type(layer).__name__}, whose statistics would take in padding")
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        raise Unsupported(f"the model's {type(layer).__name__} keeps statistics, which would take in padding")
    if isinstance(layer, nn.Embedding):
        check_embedding(layer)
    if isinstance(layer, nn.LSTM):
        check_lstm(layer)
