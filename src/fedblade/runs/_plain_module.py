"""A trained network as a plain module: the user's own, with the trained head in the place of its last layer."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedblade.core.frozen import without_frozen_norms
from fedblade.core.neck import WithNeck
from fedblade.core.network import BODY, Network
from fedblade.core.tree import Tree
from fedblade.models import with_head


class HeadModule(nn.Module):
    """A head that does not say its layers: it keeps its own code, and its tensors have its own names."""

    def __init__(self, network: Network, params: Tree, fixed: Tree) -> None:
        super().__init__()
        self._network = network
        self._names: list[dict[str, str]] = []
        for tree, trained in ((params, True), (fixed, False)):
            names = {name: name.replace(".", "_") for name in tree if not name.startswith(BODY)}
            self._names.append(names)
            for name, own in names.items():
                self.register_parameter(own, nn.Parameter(tree[name].detach().clone(), trained))

    def forward(self, features: Tensor) -> Tensor:
        """Logits [batch, classes] of features [batch, dim]."""
        params, fixed = ({name: getattr(self, own) for name, own in names.items()} for names in self._names)
        return self._network.output(params, fixed, features).logits


def plain_module(network: Network, params: Tree, buffers: Tree, fixed: Tree) -> nn.Module:
    """The network as a module that is called with normalised inputs and returns logits, in evaluation mode.

    A module whose last layer was cut off gets the head in the place of that layer, and all other tensors have the
    user's own names. Otherwise the result has the parts `body` and `head`. Necks are parts of the head.
    """
    body = copy.deepcopy(network.body)
    _fill(body, params | buffers | fixed)
    layers = _head_layers(network, params, fixed)
    while isinstance(body, WithNeck):
        layers = [*(body.neck if isinstance(body.neck, nn.Sequential) else [body.neck]), *layers]
        body = body.body
    head = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    return with_head(without_frozen_norms(body), head).eval()


@torch.no_grad()
def _fill(body: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a body the trained tensors, on their device."""
    body.to(next(iter(tensors.values())).device)
    for name, leaf in (*body.named_parameters(), *body.named_buffers()):
        leaf.copy_(tensors[f"{BODY}{name}"])


def _head_layers(network: Network, params: Tree, fixed: Tree) -> list[nn.Module]:
    layers = network.head.layers(params, fixed)
    return [HeadModule(network, params, fixed)] if layers is None else list(layers)
