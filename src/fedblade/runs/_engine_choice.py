"""Which engine a run uses: the stacked one if it can compute this run, otherwise the sequential one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, Unsupported, nearest
from fedblade.core.metric import Metric
from fedblade.core.plan import IntArray, Planner
from fedblade.core.problem import Problem
from fedblade.core.registry import Entry, engines
from fedblade.core.registry import metrics as metrics_registry
from fedblade.core.state import ServerState
from fedblade.engines.base import Engine
from fedblade.engines.stacked import StackedEngine
from fedblade.runs._device import float32_products
from fedblade.runs._operations import step_operations


class StartedEngine(NamedTuple):
    """An engine that a run gets from how it is started, not from its configuration."""

    summary: str
    refusal: str
    """Ends the error if a configuration names the engine."""


STARTED_ENGINES = {
    "distributed": StartedEngine(
        "Every cohort is shared by processes, on one machine or several; chosen by starting the run with torchrun.",
        "needs several processes. Start the run with torchrun: torchrun --nproc-per-node 2 -m fedblade run …, or use "
        "engine=auto.",
    ),
    "flower": StartedEngine(
        "Clients train on other machines, through Flower; `fedblade flower init` makes an app of a configuration.",
        "runs inside a Flower app. Make one with `fedblade flower init DIR CONFIG.toml` and start it with "
        "`fedblade flower run DIR`.",
    ),
}
LARGE_STEP = 6e8
"""Operations of one client's step that keep a CPU busy. Beyond them, stacking clients gains nothing."""
_CANDIDATES = 64
"""The conformance check uses the samples of the largest of so many clients."""


def choose_engine(
    config: RunConfig,
    problem: Problem,
    start: ServerState,
    planner: Planner,
    eligible: IntArray,
    metrics: Sequence[Metric],
    model: nn.Module | None,
) -> tuple[Engine, tuple[str, ...]]:
    """The engine of a run, and a note if `auto` cannot use the stacked engine.

    An engine that the configuration names must be able to compute the run. `model` is a module from Python.
    """
    name = config.general.engine
    if name != "auto":
        chosen: Engine = _configured(name).build(problem)
        if isinstance(chosen, StackedEngine) and not _has_only_library_parts(config, model):
            try:
                check_conformance(chosen, start, planner, eligible, metrics)
            except Unsupported as error:
                raise Unsupported(
                    f"engine 'stacked' cannot run this method: {error}. Use engine=sequential."
                ) from error
        return chosen, ()
    try:
        _check_worth(config, problem, start, len(eligible))
        stacked = StackedEngine(problem)
        if not _has_only_library_parts(config, model):
            check_conformance(stacked, start, planner, eligible, metrics)
    except Unsupported as error:
        fallback: Engine = engines.get("sequential").make(problem)
        return fallback, (f"engine: sequential, because {error}",)
    return stacked, ()


def engine_summaries() -> dict[str, str]:
    """Every engine by name, with one sentence on what the engine does."""
    registered = {entry.name: entry.summary for entry in engines.entries()}
    started = {name: engine.summary for name, engine in STARTED_ENGINES.items()}
    return dict(sorted((registered | started).items()))


def _configured(name: str) -> Entry:
    """The engine that a configuration chooses by name; refuses a name that a configuration cannot choose."""
    if name in STARTED_ENGINES:
        raise Unsupported(f"engine '{name}' {STARTED_ENGINES[name].refusal}")
    if ":" not in name and name not in engines.names():
        raise Misconfigured(f"unknown engine '{name}'.{nearest(name, engines.names(), ['auto'])}")
    return engines.get(name)


def _has_only_library_parts(config: RunConfig, model: nn.Module | None) -> bool:
    """Whether every part comes with this library. Its tests have compared the engines on these parts."""
    parts = [
        config.method.base,
        *config.method.added,
        config.model.entry,
        *map(metrics_registry.get, config.evaluation.metrics),
    ]
    return model is None and all(part is not None and part.make.__module__.startswith("fedblade.") for part in parts)


def check_conformance(
    engine: StackedEngine, start: ServerState, planner: Planner, eligible: IntArray, metrics: Sequence[Metric]
) -> None:
    """Raise `Unsupported` if the stacked engine and the sequential one differ on this method, model or metrics."""
    sizes = [len(planner.shards.indices(int(client), 0)) for client in eligible[:_CANDIDATES]]
    task = planner.task(0, int(eligible[int(np.argmax(sizes))]))
    # Numbers are compared, so the products are exact, whatever the run asks for.
    with float32_products(tf32=False):
        engine.check_conformance(start, task, metrics)


def _check_worth(config: RunConfig, problem: Problem, start: ServerState, eligible: int) -> None:
    """Raise `Unsupported` if a CPU is at least as fast with one client after another."""
    if problem.samples.labels.is_cuda:
        return
    cohort = eligible if problem.method.participation == "all" else config.federation.clients_per_round
    if cohort == 1:
        raise Unsupported("one client per round leaves nothing to put side by side")
    if any(isinstance(layer, nn.RNNBase | nn.RNNCellBase) for layer in problem.network.body.modules()):
        raise Unsupported("recurrent layers are faster on a CPU for one client after another")
    if step_operations(problem, start, config.local.batch_size) >= LARGE_STEP:
        raise Unsupported("a step of this model keeps the CPU busy by itself")
