"""`float32`: how far the engines are apart after a step and after a round in single precision."""

from benchmarks.benchmark import Benchmark, Case, Measured, Options, Result, at_most
from benchmarks.digits_federation import DigitsFederation, drive
from fedblade.core.tree import Tree
from fedblade.runs import prepare

_WHAT = "largest |stacked − sequential| / (1 + |sequential|) over the global model, 20 equal clients, digits CNN"
STEP_BOUND, ROUND_BOUND = 1e-6, 1e-5
_STEP = DigitsFederation(rounds=1, batch_size=1024)
_ROUND = DigitsFederation(rounds=1)
_RUNS = {
    "fedavg, one step": ("fedavg", _STEP, STEP_BOUND),
    "fedavg, one round": ("fedavg", _ROUND, ROUND_BOUND),
    "fedblade, one step": ("fedblade", _STEP, STEP_BOUND),
    "fedblade, one round": ("fedblade", _ROUND, ROUND_BOUND),
}


def measure(options: Options) -> Measured:
    """The largest difference of every case; nothing is timed, so there are no repetitions."""
    options.require_cpu()
    for label, (method, federation, _) in _RUNS.items():
        stacked, sequential = (
            drive(prepare(federation.config(engine, method))).state for engine in ("stacked", "sequential")
        )
        parts = ((stacked.params, sequential.params), (stacked.buffers, sequential.buffers))
        yield label, Result(max(difference(*part) for part in parts))


def difference(actual: Tree, expected: Tree) -> float:
    """The largest difference of two trees relative to 1 + |expected|."""
    gaps = (
        ((actual[name] - leaf).abs() / (1 + leaf.abs())).max()
        for name, leaf in expected.items()
        if leaf.is_floating_point()
    )
    return max((float(gap) for gap in gaps), default=0.0)


BENCHMARKS = (
    Benchmark(
        "float32",
        "rounding between the engines in single precision",
        tuple(Case(label, _WHAT, at_most(bound), "difference") for label, (_, _, bound) in _RUNS.items()),
        measure,
    ),
)
