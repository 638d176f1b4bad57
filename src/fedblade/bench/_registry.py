"""Every benchmark by name, in the order of the goals."""

from collections.abc import Callable, Sequence

from fedblade.bench import cifar, digits, float32, frameworks, lddecorr, losses, memory, metrics_cost, scaling
from fedblade.bench._base import Benchmark, Options, Row
from fedblade.core.errors import Misconfigured, nearest

_MODULES = (cifar, lddecorr, digits, frameworks, memory, scaling, float32, metrics_cost, losses)
BENCHMARKS: dict[str, Benchmark] = {each.name: each for module in _MODULES for each in module.BENCHMARKS}


def chosen(name: str | None) -> list[Benchmark]:
    """The benchmark of that name, or all of them."""
    if name is None:
        return list(BENCHMARKS.values())
    if name not in BENCHMARKS:
        raise Misconfigured(f"unknown benchmark '{name}'.{nearest(name, BENCHMARKS)}")
    return [BENCHMARKS[name]]


def run(
    benchmarks: Sequence[Benchmark], options: Options, on_start: Callable[[Benchmark], None] = lambda _: None
) -> list[Row]:
    """The rows of several benchmarks; `on_start` is told of each before it runs."""
    rows: list[Row] = []
    for benchmark in benchmarks:
        on_start(benchmark)
        rows += benchmark.run(options)
    return rows
