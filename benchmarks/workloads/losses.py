"""`losses`: milliseconds of every term of FedBlade's objective, the quantity of its Table 10."""

import torch
from torch import Tensor

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result
from benchmarks.gradients import Loss, milliseconds
from benchmarks.timing import median, one_thread
from fedblade.losses import balanced_cross_entropy, feature_alignment, lddecorr, projector_alignment

MODELS = {"MobileNetV2": 1280, "ResNet-18": 512}
DATA = {"CIFAR-10": 10, "CIFAR-100": 100, "Tiny-ImageNet": 200}
_WHAT = (
    "sum of L_sup, L_FA, L_PA and L_LDDecorr, forward and backward at batch 64 from given logits, features and "
    "projected prototypes; a GPU replays a graph, the CPU uses one thread"
)


def measure(options: Options, batch: int = 64, repetitions: int = 7) -> Measured:
    """The terms take turns, for every model and data set of the table."""
    device = "cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu"
    for model, dim in MODELS.items():
        for data, classes in DATA.items():
            sides = terms(batch, dim, classes, device)
            with one_thread():
                times = milliseconds(list(sides.values()), options.repetitions(repetitions))
            totals = [sum(repetition) for repetition in zip(*times, strict=True)]
            medians = {f"{name} ms": median(series) for name, series in zip(sides, times, strict=True)}
            yield f"{model}, {data}", Result(median(totals), medians, totals, f"on {device}")


def terms(batch: int, dim: int, classes: int, device: str) -> dict[str, tuple[Loss, Tensor]]:
    """The terms by name: a function of the tensor that receives gradients, and that tensor."""
    generator = torch.Generator().manual_seed(dim + classes)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    labels = torch.arange(batch, device=device) % classes
    counts = labels.bincount(minlength=classes)
    features, prototypes, targets = normal(batch, dim).relu(), normal(classes, dim), normal(dim, classes)
    present = torch.ones(classes, device=device)
    return {
        "L_sup": (lambda logits: balanced_cross_entropy(logits, labels, counts), normal(batch, classes)),
        "L_FA": (lambda z: feature_alignment(z, labels, prototypes, counts, mask=present), features),
        "L_PA": (lambda projected: projector_alignment(projected, targets, present), normal(classes, dim)),
        "L_LDDecorr": (lddecorr, features),
    }


BENCHMARKS = (
    Benchmark(
        "losses",
        "milliseconds of every term of FedBlade's objective",
        tuple(Case(f"{model}, {data}", _WHAT, unit="ms") for model in MODELS for data in DATA),
        measure,
    ),
)
