"""`lddecorr`: decorrelation losses against the arithmetic of their papers, in time and in the error of the gradient."""

import torch
from torch import Tensor

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, Skipped, at_least, at_most
from benchmarks.gradients import Loss, gradient, milliseconds
from benchmarks.timing import median, one_thread, paired_ratios
from fedblade.losses import feddecorr, lddecorr

SIZES = ((64, 1280), (64, 512))
_DEVICES = ("cpu", "cuda")
_GOALS = {("lddecorr", 1280): at_least(8)}
_WHAT = "forward and backward in float32, the paper's d × d arithmetic over ours; one CPU thread, a GPU replays a graph"
_ERROR = "‖g − g₆₄‖ / ‖g₆₄‖ of the gradient in float32, against the paper's arithmetic in float64"


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


PAIRS: dict[str, tuple[Loss, Loss]] = {
    "lddecorr": (lddecorr, lddecorr_paper),
    "feddecorr": (feddecorr, feddecorr_paper),
}


def measure(options: Options, sizes: tuple[tuple[int, int], ...] = SIZES, repetitions: int = 7) -> Measured:
    """Time and gradient error of both losses at every size, on the CPU and on a GPU where there is one."""
    for device in _DEVICES:
        try:
            options.require_cpu() if device == "cpu" else options.require_cuda()
        except Skipped as reason:
            yield from ((case.label, str(reason)) for case in _cases(device))
            continue
        for size in sizes:
            z = torch.randn(size, generator=torch.Generator().manual_seed(size[1])).relu().to(device)
            for name, (ours, paper) in PAIRS.items():
                with one_thread():
                    fast, slow = milliseconds([(ours, z), (paper, z)], options.repetitions(repetitions))
                ratios, label = paired_ratios(slow, fast), _label(name, size[1], device)
                errors = {"ours error": _error(ours, paper, z), "paper error": _error(paper, paper, z)}
                medians = {"ours ms": median(fast), "paper ms": median(slow)}
                yield label, Result(median(ratios), medians | errors, ratios)
                yield f"{label}, gradient", Result(errors["ours error"], errors)


def _error(loss: Loss, paper: Loss, z: Tensor) -> float:
    exact = gradient(paper, z.double())
    return float((gradient(loss, z).double() - exact).norm() / exact.norm())


def _label(name: str, dim: int, device: str) -> str:
    return f"{name} 64×{dim}, {device}"


def _cases(device: str) -> list[Case]:
    timed = [Case(_label(name, dim, device), _WHAT, _GOALS.get((name, dim))) for _, dim in SIZES for name in PAIRS]
    wanted = [case for case in timed if case.goal is not None]
    errors = [Case(f"{case.label}, gradient", _ERROR, at_most(1e-5), "difference") for case in wanted]
    return [*timed, *errors]


BENCHMARKS = (
    Benchmark(
        "lddecorr",
        "decorrelation losses against the papers' arithmetic",
        tuple(case for device in _DEVICES for case in _cases(device)),
        measure,
    ),
)
