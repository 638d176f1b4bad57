"""Forward and backward of losses: eagerly on the CPU, as the replay of a captured graph on a GPU."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]


def gradient(loss: Loss, z: Tensor) -> Tensor:
    """Forward and backward."""
    leaf = z.detach().requires_grad_()
    (result,) = torch.autograd.grad(loss(leaf), leaf)
    return result


def timed_function(loss: Loss, z: Tensor) -> Callable[[], object]:
    """The calculation itself on a CPU; on a GPU the replay of its captured graph, until the GPU is done.

    Without a graph the GPU would wait for about forty kernel launches. The stacked engine replays graphs too.
    """
    if not z.is_cuda:
        return lambda: gradient(loss, z)
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        for _ in range(3):
            gradient(loss, z)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradient(loss, z)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay


def milliseconds(sides: Sequence[tuple[Loss, Tensor]], repetitions: int) -> list[list[float]]:
    """Milliseconds of every loss at its tensor, taking turns; a repetition is the median of ten calls."""
    functions = [timed_function(*side) for side in sides]
    times: list[list[float]] = [[] for _ in sides]
    for run in functions * 2:
        run()
    for _ in range(repetitions):
        for run, record in zip(functions, times, strict=True):
            record.append(1e3 * statistics.median(_seconds(run) for _ in range(10)))
    return times


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
