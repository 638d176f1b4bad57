"""Decorrelation losses against the arithmetic of the papers: time of forward and backward, and gradient error.

Run as `python benchmarks/lddecorr.py [--json] [--device cpu|cuda] [--clients N]`. Both sides take turns in one process,
so a busy machine slows them alike; the ratio of medians is the result. On the CPU one thread unless told otherwise:
small parallel regions wait for the slowest core, so on a shared machine they measure the neighbours. On a GPU both are
replayed from a captured graph, as in the stacked engine; eager, either is the time to launch some forty kernels. Errors
are relative to float64.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from fedblade.losses import feddecorr, lddecorr

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    """One comparison: milliseconds per forward and backward, their ratio, and gradient errors."""

    loss: str
    clients: int
    batch: int
    dim: int
    ours_milliseconds: float
    paper_milliseconds: float
    ratio: float
    ours_gradient_error: float
    paper_gradient_error: float


def lddecorr_paper(z: Tensor) -> Tensor:
    """LDDecorr as FedBlade describes it: Cholesky of the d × d correlation in the dtype of z, by autograd."""
    Z = (z - z.mean(0)) / (z.var(0, correction=0) + 1e-8).sqrt()
    matrix = Z.mT @ Z / len(z) + 1e-4 * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    factor: Tensor = torch.linalg.cholesky_ex(matrix).L
    return -2 * factor.diagonal().log().sum()


def feddecorr_paper(z: Tensor) -> Tensor:
    """FedDecorr as its Algorithm 1: the d × d correlation, by autograd."""
    Z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    return (Z.mT @ Z / len(z)).square().mean()


def gradient(loss: Loss, z: Tensor) -> Tensor:
    """Forward and backward for z [clients, batch, dim], all clients at once as in the stacked engine."""
    leaf = z.detach().requires_grad_()
    values = loss(leaf[0]) if len(leaf) == 1 else torch.func.vmap(loss)(leaf).sum()
    (result,) = torch.autograd.grad(values, leaf)
    return result


def runner(loss: Loss, z: Tensor) -> Callable[[], object]:
    """What to time: the calculation itself, or on a GPU the replay of its captured graph up to its end."""
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


def interleaved(losses: list[Loss], z: Tensor, seconds: float) -> list[float]:
    """Median milliseconds of each loss, taking turns for about `seconds`."""
    runners = [runner(loss, z) for loss in losses]
    times: list[list[float]] = [[] for _ in losses]
    for run in runners * 2:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, record in zip(runners, times, strict=True):
            start = time.perf_counter()
            run()
            record.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(record) for record in times]


def compare(name: str, ours: Loss, paper: Loss, z: Tensor, seconds: float) -> Row:
    """Time both sides and measure their gradients against float64."""
    fast, slow = interleaved([ours, paper], z, seconds)
    exact = gradient(paper, z.double())

    def error(loss: Loss) -> float:
        return float((gradient(loss, z).double() - exact).norm() / exact.norm())

    return Row(name, z.shape[0], z.shape[1], z.shape[2], fast, slow, slow / fast, error(ours), error(paper))


def main() -> None:
    """Print a line per loss and shape, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--clients", type=int, default=1, help="clients at once")
    parser.add_argument("--seconds", type=float, default=5.0, help="time per comparison")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch on the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for batch, dim in ((64, 1280), (64, 512)):
        generator = torch.Generator().manual_seed(dim)
        z = torch.randn(options.clients, batch, dim, generator=generator).relu().to(options.device)
        rows.append(compare("lddecorr", lddecorr, lddecorr_paper, z, options.seconds))
        rows.append(compare("feddecorr", feddecorr, feddecorr_paper, z, options.seconds))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    print(f"device {options.device}, torch {torch.__version__}, threads {options.threads}, clients {options.clients}")
    for row in rows:
        print(
            f"{row.loss:10s} {row.batch}×{row.dim:<5d} {row.ours_milliseconds:8.3f} ms  "
            f"paper {row.paper_milliseconds:8.3f} ms  ratio {row.ratio:6.1f}  "
            f"gradient error {row.ours_gradient_error:.1e} (paper {row.paper_gradient_error:.1e})"
        )


if __name__ == "__main__":
    main()
