"""Parts of your own, in your own file: a loss, a head, a method, a model, a partition, a data set and a metric.

Every part is used by reference, so nothing has to be installed or registered:

    fedblade run --set method=examples/own_parts.py:smooth --set method.smoothing=0.2
    fedblade run --set method=examples/own_parts.py:smooth+feddecorr
    fedblade run --set model=examples/own_parts.py:two_layers --set partition=examples/own_parts.py:EvenOdd
    fedblade run --set metrics=examples/own_parts.py:confidence

The arguments with a default are the knobs a configuration may set. `examples/plugin_package` shows how an installed
package gives its parts plain names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import fedblade
from fedblade.api import (
    DataPass,
    Field,
    Head,
    HeadOutput,
    HeadTensors,
    Method,
    Metric,
    StepView,
    Streams,
    Term,
    TermValue,
    Tree,
    fedavg,
)
from fedblade.data import Dataset, as_dataset
from fedblade.partitions import Partitioner, Request, Split


@dataclass(frozen=True, kw_only=True)
class SmoothedCrossEntropy(Term):
    """A loss: cross-entropy with smoothed labels. It sees one client and one batch, never a loop or a device."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True
    smoothing: float

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the batch."""
        return TermValue(nn.functional.cross_entropy(view.logits, view.labels, label_smoothing=self.smoothing))


@dataclass(frozen=True)
class BiasFreeHead(Head):
    """A head: logits W z without a bias. Names start with their group, here `head`."""

    def init(self, dim: int, num_classes: int, streams: Streams) -> HeadTensors:
        """Start from small random weights, drawn from a stream of its own."""
        weight = torch.randn(num_classes, dim, generator=streams.torch("init", 1)) / dim**0.5
        return HeadTensors(params={"head.weight": weight}, fixed={})

    def __call__(self, params: Tree, fixed: Tree, features: Tensor) -> HeadOutput:
        """W z."""
        return HeadOutput(logits=features @ params["head.weight"].mT, projected=features)


def smooth(smoothing: float = 0.1) -> Method:
    """A method: FedAvg with another head and another loss, and nothing else to write."""
    return replace(fedavg(), head=BiasFreeHead(), losses=(SmoothedCrossEntropy(smoothing=smoothing),))


def two_layers(input_shape: tuple[int, ...], width: int = 64) -> nn.Module:
    """A model: any module that maps a batch of inputs to features [batch, dim]."""
    inputs = int(np.prod(input_shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 32), nn.ReLU())


@dataclass(frozen=True)
class EvenOdd(Partitioner):
    """A partition: half of the clients share the even classes, the other half the odd ones."""

    def divide(self, request: Request) -> Split:
        """Say how much of each class goes to each client; the library deals the samples."""
        clients, classes = np.arange(request.num_clients), np.arange(request.num_classes)
        return request.by_shares((clients[:, None] % 2 == classes[None, :] % 2).astype(np.int64))


def two_moons(samples: int = 600, noise: float = 0.1) -> Dataset:
    """A data set: four arrays are enough."""
    draw = np.random.default_rng(0)
    angle, label = draw.uniform(0, np.pi, samples), draw.integers(0, 2, samples)
    points = np.stack([np.cos(angle) + label, np.sin(angle) * (1 - 2 * label) + 0.5 * label], axis=1)
    points = (points + noise * draw.standard_normal(points.shape)).astype(np.float32)
    cut = samples // 4
    return as_dataset((points[cut:], label[cut:], points[:cut], label[:cut]))


def _confidences(view: StepView) -> Tree:
    """Sums over a batch. Samples that the mask leaves out only fill the batch up."""
    real = torch.ones_like(view.labels) if view.mask is None else view.mask
    largest = view.logits.double().softmax(-1).amax(-1)
    return {"total": torch.where(real != 0, largest, 0.0).sum(), "count": (real != 0).sum().double()}


CONFIDENCES = DataPass("confidences", _confidences)


def confidence() -> Metric:
    """A metric: sums over the test samples, and a number made of their totals. The field says how to show it."""
    field = Field(
        "confidence",
        "How sure the model is",
        unit="probability",
        reading="The mean probability of the answered class: 1 if the model is always sure.",
        low=0.0,
        high=1.0,
    )

    def finish(totals: Mapping[str, Tree]) -> dict[str, float]:
        sums = totals[CONFIDENCES.name]
        return {"confidence": float(sums["total"] / sums["count"])}

    return Metric(passes=(CONFIDENCES,), finish=finish, fields=(field,))


def main() -> None:
    """The same from Python: names, references and objects mix freely."""
    here = __file__
    result = fedblade.run(method=f"{here}:smooth", partition=f"{here}:EvenOdd", rounds=10)
    print(f"digits, even and odd clients: {result.summary['final_accuracy']:.1f} %")
    settings = {"num_clients": 4, "clients_per_round": 4, "rounds": 5, "partition": "iid"}
    result = fedblade.run(method="fedavg", dataset=two_moons(), model=two_layers((2,)), **settings)
    print(f"two moons: {result.summary['final_accuracy']:.1f} %")


if __name__ == "__main__":
    main()
