"""What of a preset no run gives: the numbers that benchmarks measure.

A cell all of whose numbers come from a benchmark is pending. A name that is not known is a mistake, and an error.
"""

from dataclasses import dataclass
from typing import Any, get_args

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.config.schema import Evaluation
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import metrics
from fedblade.presets.grid import GridCell

_FROM_RUNS = {"best", "rounds_to", "speedup_to", "history", "seconds_per_round", "minutes_per_round", "prototype_kb"}
_FROM_RUNS |= set(get_args(Evaluation.model_fields["protocol"].annotation))
_ELSEWHERE = {"bench": "`fedblade bench losses`"}


@dataclass(frozen=True)
class Readiness:
    """Whether a cell can run: what is missing if it cannot, and why some metrics cannot be had."""

    missing: tuple[str, ...]
    unmeasured: dict[str, str]


def readiness(cell: GridCell) -> Readiness:
    """Look a cell's parts up; a name or setting that does not exist raises."""
    config = complete_config({**apply_overrides(cell.config, {}), "seed": cell.seeds[0]})
    config.build_method()
    for name in config.evaluation.metrics:
        metrics.get(name)
    unmeasured = {metric: why for metric in cell.measures if (why := _unmeasurable(cell.measures[metric]))}
    missing = set(unmeasured.values()) if len(unmeasured) == len(cell.measures) else ()
    return Readiness(tuple(sorted(missing)), unmeasured)


def _unmeasurable(measure: Any) -> str | None:
    """Why a metric cannot be had, or None if it can."""
    how = next(iter(measure.values())) if isinstance(measure, dict) else measure
    kind = str(how).partition(" ")[0]
    if kind in _FROM_RUNS:
        return None
    if kind not in _ELSEWHERE:
        raise Misconfigured(f"unknown measure '{how}'.{nearest(kind, (*_FROM_RUNS, *_ELSEWHERE))}")
    return _ELSEWHERE[kind]
