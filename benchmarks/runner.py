"""Every benchmark by name, in the order of the goals, and the function that `fedblade bench` calls."""

from collections.abc import Callable, Iterable

from benchmarks import table
from benchmarks.benchmark import Benchmark, Options
from benchmarks.workloads import (
    cifar,
    digits,
    estimate,
    float32,
    frameworks,
    growth,
    jobs,
    lddecorr,
    losses,
    memory,
    metrics,
    scaling,
    state,
    tables,
)
from fedblade.core.errors import Misconfigured, nearest

_MODULES = (
    cifar,
    state,
    lddecorr,
    digits,
    frameworks,
    memory,
    scaling,
    jobs,
    estimate,
    growth,
    tables,
    float32,
    metrics,
    losses,
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for module in _MODULES for benchmark in module.BENCHMARKS}


def run_as_text(
    name: str | None, *, repeat: int | None, device: str, style: str, on_start: Callable[[str], None]
) -> str:
    """Run one benchmark, or all without a name, and return the rows in a style of `table.STYLES`.

    `on_start` receives a line about every benchmark before it runs.
    """
    options = Options(repeat, device)
    rows = []
    for benchmark in _chosen(name):
        on_start(f"{benchmark.name}: {benchmark.summary} …")
        rows += benchmark.run(options)
    return table.STYLES[style](table.with_machine(rows))


def _chosen(name: str | None) -> Iterable[Benchmark]:
    if name is None:
        return BENCHMARKS.values()
    if name not in BENCHMARKS:
        raise Misconfigured(f"unknown benchmark '{name}'.{nearest(name, BENCHMARKS)}")
    return (BENCHMARKS[name],)
