"""Diagnostics of clients after their local training: sums beside the method's sums, which are not sent."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedblade.core.end import client_numbers, end_view
from fedblade.core.passes import PassData, PassModel, client_passes, run_passes
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.tree import Tree


@dataclass(frozen=True)
class DiagnosticRequest:
    """What diagnostics ask of the cohort: sums of every client, and sums of the client with the lowest id.

    Passes that are `measured` go over the samples at `indices` with the client's trained model.
    """

    every: tuple[Sum, ...]
    first: tuple[Sum, ...]
    samples: Samples
    indices: Tensor


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


def measured_passes(sums: tuple[Sum, ...]) -> list[DataPass]:
    """The passes over measured samples that the sums need, each name once."""
    return list({data_pass.name: data_pass for declared in sums for data_pass in declared.measured}.values())


def diagnose_client(
    problem: Problem, received: Received, model: LocalModel, diagnostics: DiagnosticRequest, *, first: bool
) -> DiagnosticSums:
    """What one client adds after its training; `first` says that it has the lowest id of the cohort."""
    clock = Clock(diagnostics.indices)
    task, sums = received.task, diagnostics.every + (diagnostics.first if first else ())
    measured = PassModel.of_client(received, model)
    measured = replace(measured, anchor=received.anchor, anchor_buffers=received.buffers)
    data = PassData(diagnostics.samples, diagnostics.indices)
    passes = client_passes(problem, received, model, sums)
    passes |= run_passes(measured_passes(sums), problem.network, measured, data)
    view = end_view(problem, received, model, passes, client_numbers(problem, task, problem.method.phases))
    alone = Sums.of(diagnostics.first, view, task.client) if first else Sums()
    return DiagnosticSums(Sums.of(diagnostics.every, view, task.client), alone, clock.seconds())
