"""What of a preset cannot run yet: parts that are agreed upon and not registered, protocols to come.

Parts to come are listed in `presets/papers/names.toml`. Any other name that is not known is a mistake, and an error.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import Registry, methods, metrics, regularisers
from fedblade.experiment._config import resolve
from fedblade.experiment._grid import GridCell, lookup, merge
from fedblade.experiment._overrides import apply
from fedblade.experiment._presets import names_in_papers
from fedblade.experiment._schema import Evaluation
from fedblade.methods import compose

_FROM_RUNS = {"last10", "last5", "final", "best", "domain", "rounds_to", "speedup_to", "history"}
_FROM_RUNS |= {"seconds_per_round", "minutes_per_round", "prototype_kb"}
_ELSEWHERE = {"bench": "measured by `fedblade bench`"}
_TUNED = "-ft"


@dataclass(frozen=True)
class Readiness:
    """Whether a cell can run: the configuration to run it with, and what is missing if it cannot.

    `config` asks for the best protocol there is; what needs another one is in `unmeasured`, by metric.
    """

    config: dict[str, Any]
    missing: tuple[str, ...]
    unmeasured: dict[str, str]


def readiness(cell: GridCell) -> Readiness:
    """Look a cell's parts up; a name or setting that neither exists nor is to come raises."""
    config = cell.config
    protocol = lookup(config, "evaluation.protocol")
    if not _known_protocol(protocol) and protocol in _to_come("protocols"):
        config = merge(config, {"evaluation": {"protocol": _fallback(cell)}})
    wanted = dict.fromkeys((*(lookup(config, "evaluation.metrics") or ()), *cell.needs))
    absent = _missing("metric", wanted, metrics)
    missing = [*missing_of_method(str(lookup(config, "method"))), *(f"metric {name}" for name in absent)]
    _check(config, cell.seeds[0], stand_in=bool(missing))
    unmeasured = {metric: why for metric in cell.measures if (why := _unmeasurable(cell.measures[metric]))}
    if len(unmeasured) == len(cell.measures):
        missing += sorted(set(unmeasured.values()))
    return Readiness(config, tuple(missing), unmeasured)


def missing_of_method(name: str) -> list[str]:
    """Parts to come of a method's name; one that is neither registered nor to come raises."""
    place, _, parts = name.rpartition(":")
    if place:
        return []
    base, *added = parts.split("+")
    plain = base.removesuffix(_TUNED) if _TUNED in _to_come("suffixes") and base not in methods.names() else base
    missing = [f"method {each}" for each in _missing("method", [plain], methods)]
    missing += [f"regulariser {each}" for each in _missing("regulariser", added, regularisers)]
    if missing or plain == base:
        return missing
    compose("+".join((plain, *added)))
    try:
        compose(name)
    except Misconfigured:
        return [f"method {name}"]
    return []


def _check(config: dict[str, Any], seed: int, *, stand_in: bool) -> None:
    """Resolve the configuration; where parts are to come, what does not depend on them."""
    raw = {**apply(config, {}), "seed": seed}
    if stand_in:
        known = [name for name in lookup(config, "evaluation.metrics") or () if name in metrics.names()]
        raw["method"] = {"name": "fedavg"}
        raw["evaluation"] = {**raw.get("evaluation", {}), "metrics": known or ["accuracy"]}
    resolve(raw)


def _missing(kind: str, names: Iterable[str], known: Registry) -> list[str]:
    """Those of the names that are to come; one that is not known at all raises."""
    missing = [name for name in names if name not in known.names()]
    for name in missing:
        if name not in _to_come(f"{kind}s"):
            known.get(name)
    return [name for name in missing if name in _to_come(f"{kind}s")]


def _to_come(kind: str) -> list[str]:
    names: list[str] = names_in_papers()["to_come"][kind]
    return names


def _unmeasurable(measure: Any) -> str | None:
    """Why a metric cannot be had, or None if it can."""
    how = next(iter(measure.values())) if isinstance(measure, dict) else measure
    kind = str(how).partition(" ")[0]
    if kind in _FROM_RUNS or _known_protocol(kind):
        return None
    if kind not in (*_ELSEWHERE, *_to_come("protocols")):
        raise Misconfigured(f"unknown measure '{how}'.{nearest(kind, (*_FROM_RUNS, *_to_come('protocols')))}")
    return _ELSEWHERE.get(kind, f"protocol {kind}")


def _known_protocol(name: Any) -> bool:
    known = get_args(Evaluation.model_fields["protocol"].annotation)
    return name is None or not known or name in known


def _fallback(cell: GridCell) -> str:
    """A protocol that exists, for a cell whose own does not: the one another of its metrics is read by."""
    kinds = [how.partition(" ")[0] for how in cell.measures.values() if isinstance(how, str)]
    return next((kind for kind in kinds if _known_protocol(kind)), "final")
