"""Diagnostics of clients after their local training: sums beside the method's sums, which are not sent."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedblade.core.end import Ended
from fedblade.core.passes import PassData, PassModel, measured_passes
from fedblade.core.received_features import ReceivedFeatures
from fedblade.core.samples import Samples
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree


@dataclass(frozen=True)
class DiagnosticRequest:
    """What diagnostics ask of the cohort: sums of every client, and sums of the client with the lowest id.

    Passes that are `measured` go over the samples at `indices` with the client's trained model. A request belongs to
    one round: `received` keeps the features of the model that the clients of the round received.
    """

    every: tuple[Sum, ...]
    first: tuple[Sum, ...]
    samples: Samples
    indices: Tensor
    received: ReceivedFeatures = field(default_factory=ReceivedFeatures, init=False, compare=False)


@dataclass(frozen=True)
class DiagnosticSums:
    """Sums for diagnostics, added up over clients, and the seconds they took, which do not count as training."""

    every: Sums = field(default_factory=Sums)
    first: Sums = field(default_factory=Sums)
    seconds: float = 0.0

    def __add__(self, other: "DiagnosticSums") -> "DiagnosticSums":
        return DiagnosticSums(self.every + other.every, self.first + other.first, self.seconds + other.seconds)

    def totals(self) -> Mapping[str, Tree]:
        """Every sum by its name; empty if no client trained."""
        return {**self.every.trees, **self.first.trees}


class Clock:
    """Seconds since the clock was made; work that a GPU still has to do is waited for."""

    def __init__(self, on_device: Tensor) -> None:
        self._tensor = on_device
        self._began = self._now()

    def seconds(self) -> float:
        """The time until now."""
        return self._now() - self._began

    def _now(self) -> float:
        if self._tensor.is_cuda:
            torch.cuda.synchronize(self._tensor.device)
        return time.perf_counter()


def diagnose(ended: Ended, diagnostics: DiagnosticRequest, first: int | None) -> DiagnosticSums:
    """What clients add after their training; the client with id `first` also adds the sums that it alone makes."""
    clock = Clock(diagnostics.indices)
    of_all, of_first = _sums(ended, diagnostics, diagnostics.every), Sums()
    for position, task in enumerate(ended.tasks):
        if task.client == first:
            received, model = ended.clients.at(position, ended.received, ended.model)
            of_first = _sums(Ended(ended.clients, [task], received, model), diagnostics, diagnostics.first)
    return DiagnosticSums(of_all, of_first, clock.seconds())


def _sums(ended: Ended, diagnostics: DiagnosticRequest, sums: tuple[Sum, ...]) -> Sums:
    """What clients add to sums whose passes may also go over the measured samples."""
    if not sums:
        return Sums()
    received = ended.received
    models = PassModel.of_clients(received, ended.model)
    models = replace(models, anchor=received.anchor, anchor_buffers=received.buffers)
    measured = measured_passes(sums)
    before = None
    if any(data_pass.anchored for data_pass in measured):
        before = diagnostics.received.at(ended.clients, received, diagnostics.samples, diagnostics.indices)
    indices = [diagnostics.indices] * len(ended.tasks)
    data = PassData(diagnostics.samples, indices, anchor_features=before)
    totals = ended.passes(sums) | (ended.clients.run_passes(measured, models, data) if measured else {})
    return ended.sums(sums, totals)
