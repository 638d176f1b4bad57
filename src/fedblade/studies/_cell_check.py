"""Whether the parts of a cell exist, and which of its metrics only a benchmark measures."""

from collections.abc import Mapping
from typing import Any, get_args

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.config.schema import Evaluation
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import metrics
from fedblade.presets.grid import Cell

_FROM_RUNS = {"best", "rounds_to", "speedup_to", "history", "seconds_per_round", "minutes_per_round", "prototype_kb"}
_FROM_RUNS |= set(get_args(Evaluation.model_fields["protocol"].annotation))
_FROM_BENCHMARKS = {"bench": "`fedblade bench losses`"}


def check_cell(cell: Cell) -> Mapping[str, str]:
    """Look up every part of a cell: an unknown name or setting is an error.

    Returns the metrics that no run gives, with the command that measures them.
    """
    config = complete_config({**apply_overrides(cell.config, {}), "seed": cell.seeds[0]})
    config.build_method()
    for name in config.evaluation.metrics:
        metrics.get(name)
    commands = {metric: _benchmark_of(measure) for metric, measure in cell.measures.items()}
    return {metric: command for metric, command in commands.items() if command is not None}


def _benchmark_of(measure: Any) -> str | None:
    """The command that measures a metric; None where runs give the metric."""
    text = str(next(iter(measure.values())) if isinstance(measure, dict) else measure)
    kind = text.partition(" ")[0]
    if kind in _FROM_RUNS:
        return None
    if kind not in _FROM_BENCHMARKS:
        raise Misconfigured(f"unknown measure '{text}'.{nearest(kind, (*_FROM_RUNS, *_FROM_BENCHMARKS))}")
    return _FROM_BENCHMARKS[kind]
