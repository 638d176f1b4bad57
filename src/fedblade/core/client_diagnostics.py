"""What diagnostics see of clients after their local training: sums beside the method's own, which nobody sends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedblade.core.end import client_numbers, end_view
from fedblade.core.local import LocalModel
from fedblade.core.passes import run_passes
from fedblade.core.problem import Problem, Received
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


def own_passes(problem: Problem, received: Received, row: LocalModel, sums: Sequence[Sum]) -> dict[str, Tree]:
    """The passes that the sums need over the client's training data; plain and augmented ones apart."""
    wanted = {each.name: each for declared in sums for each in declared.passes}
    totals: dict[str, Tree] = {}
    for augmented in (False, True):
        passes: list[DataPass] = [each for each in wanted.values() if each.augmented == augmented]
        totals |= run_passes(
            passes,
            problem.network,
            (row.params, row.buffers, received.fixed),
            problem.samples,
            received.task.indices,
            counts=received.task.counts,
            draws=received.task.pass_draws if augmented else None,
            server=received.server,
            client=received.client,
            round_=received.task.round,
        )
    return totals


def diagnose_client(
    problem: Problem, received: Received, row: LocalModel, diagnostics: DiagnosticRequest, *, first: bool
) -> DiagnosticSums:
    """What one client adds after its training; `first` says that it is the cohort's first."""
    clock = Clock(diagnostics.indices)
    task, sums = received.task, diagnostics.every + (diagnostics.first if first else ())
    model = (row.params, row.buffers, received.fixed)
    passes = own_passes(problem, received, row, sums) | run_passes(
        measured_passes(sums),
        problem.network,
        model,
        diagnostics.samples,
        diagnostics.indices,
        counts=task.counts,
        server=received.server,
        client=received.client,
        round_=task.round,
        anchor=(received.anchor, received.buffers),
    )
    view = end_view(problem, received, row, passes, client_numbers(problem, task, problem.method.phases))
    alone = Sums.of(diagnostics.first, view, task.client) if first else Sums()
    return DiagnosticSums(Sums.of(diagnostics.every, view, task.client), alone, clock.seconds())
