"""What diagnostics see of clients after their local training: sums beside the method's own, which nobody sends."""

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
    """What is asked of the cohort: sums of every client, sums of the one with the lowest id alone, and the samples.

    Passes that are `measured` go over the samples at `indices` with the client's trained model.
    """

    every: tuple[Sum, ...]
    first: tuple[Sum, ...]
    samples: Samples
    indices: Tensor


@dataclass(frozen=True)
class DiagnosticSums:
    """What was seen, added up over clients, and the seconds it took: they are not part of training."""

    every: Sums = field(default_factory=Sums)
    first: Sums = field(default_factory=Sums)
    seconds: float = 0.0

    def __add__(self, other: "DiagnosticSums") -> "DiagnosticSums":
        return DiagnosticSums(self.every + other.every, self.first + other.first, self.seconds + other.seconds)

    def totals(self) -> Mapping[str, Tree]:
        """Every sum by its name; none if nobody trained."""
        return {**self.every.trees, **self.first.trees}


class Clock:
    """Seconds since it was made, what a GPU still has to do included."""

    def __init__(self, where: Tensor) -> None:
        self._where = where
        self._began = self._now()

    def seconds(self) -> float:
        """The time until now."""
        return self._now() - self._began

    def _now(self) -> float:
        if self._where.is_cuda:
            torch.cuda.synchronize(self._where.device)
        return time.perf_counter()


def measured_passes(sums: tuple[Sum, ...]) -> list[DataPass]:
    """The passes over measured samples that the sums need, each once."""
    return list({each.name: each for declared in sums for each in declared.measured}.values())


def diagnose_client(
    problem: Problem, received: Received, model: LocalModel, diagnostics: DiagnosticRequest, *, first: bool
) -> DiagnosticSums:
    """What one client adds after its training; `first` says that it is the cohort's first."""
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
