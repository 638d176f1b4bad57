"""What of a preset cannot run yet: parts that are not registered, settings that do not exist, protocols to come."""

from dataclasses import dataclass
from typing import Any, get_args

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import Registry, datasets, methods, metrics, models, partitions, regularisers
from fedblade.experiment._config import resolve
from fedblade.experiment._grid import GridCell, lookup, merge
from fedblade.experiment._overrides import apply
from fedblade.experiment._schema import Evaluation
from fedblade.methods import compose

_PARTS: dict[str, Registry] = {"dataset": datasets, "partition": partitions, "model": models}
_FROM_RUNS = {"last10", "last5", "final", "best", "domain", "rounds_to", "speedup_to", "history"}
_FROM_RUNS |= {"seconds_per_round", "minutes_per_round", "prototype_kb"}
_ELSEWHERE = {"bench": "measured by `fedblade bench`"}


@dataclass(frozen=True)
class Readiness:
    """Whether a cell can run: the configuration to run it with, and what is missing if it cannot.

    `config` asks for the best protocol there is; what needs another one is in `unmeasured`, by metric.
    """

    config: dict[str, Any]
    missing: tuple[str, ...]
    unmeasured: dict[str, str]


def readiness(cell: GridCell) -> Readiness:
    """Look a cell's parts up."""
    unmeasured = {metric: why for metric in cell.measures if (why := _unmeasurable(cell.measures[metric]))}
    config = cell.config
    if not _known_protocol(lookup(config, "evaluation.protocol")):
        config = merge(config, {"evaluation": {"protocol": _fallback(cell)}})
    missing = [*_missing_parts(config), *(f"metric {name}" for name in cell.needs if name not in metrics.names())]
    if len(unmeasured) == len(cell.measures):
        missing += sorted(set(unmeasured.values()))
    if not missing:
        try:
            resolve({**apply(config, {}), "seed": cell.seeds[0]})
        except Misconfigured as error:
            missing.append(f"setting: {error}")
    return Readiness(config, tuple(missing), unmeasured)


def _missing_parts(config: dict[str, Any]) -> list[str]:
    missing = [
        f"{kind} {name}" for kind, known in _PARTS.items() if (name := lookup(config, kind)) not in known.names()
    ]
    name = str(lookup(config, "method"))
    base, *added = name.split("+")
    parts = [] if base.removesuffix("-ft") in methods.names() else [f"method {base.removesuffix('-ft')}"]
    parts += [f"regulariser {each}" for each in added if each not in regularisers.names()]
    wanted = lookup(config, "evaluation.metrics") or []
    unknown = [f"metric {each}" for each in wanted if each not in metrics.names()]
    return [*missing, *(parts or _not_composable(name)), *unknown]


def _not_composable(name: str) -> list[str]:
    """A name whose parts exist may still use a way of joining them that does not."""
    try:
        compose(name)
    except Misconfigured:
        return [f"method {name}"]
    return []


def _unmeasurable(measure: Any) -> str | None:
    """Why a metric cannot be had, or None if it can."""
    how = next(iter(measure.values())) if isinstance(measure, dict) else measure
    kind = how.partition(" ")[0]
    if kind in _FROM_RUNS or _known_protocol(kind):
        return None
    return _ELSEWHERE.get(kind, f"protocol {kind}")


def _known_protocol(name: Any) -> bool:
    known = get_args(Evaluation.model_fields["protocol"].annotation)
    return name is None or not known or name in known


def _fallback(cell: GridCell) -> str:
    """A protocol that exists, for a cell whose own does not: the one another of its metrics is read by."""
    kinds = [how.partition(" ")[0] for how in cell.measures.values() if isinstance(how, str)]
    return next((kind for kind in kinds if _known_protocol(kind)), "final")
