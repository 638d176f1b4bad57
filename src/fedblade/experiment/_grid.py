"""From a preset's tables to its cells: blocks are inherited, lists of the grid multiply, cases change settings.

A preset is data. Its tables are those of a run's configuration, and beside them stand the words in `WORDS`:

- `extends`: a block or preset whose tables come first; `summary`: one line for lists; `seeds`: one run each.
- `grid`: axes, every value with every other; a list of such tables is a union. An axis is a key (`local.epochs`), a
  section (`dataset`, `model`, `method`: its name), `split` (`"dirichlet 0.1"`), or any word whose values are tables of
  settings; such a table may carry the `label` of the method. `"@name"` stands for a list under `[lists]`.
- `cases`: `where` (keys and the value or values they must have) and what then holds: `set`, `columns`, `measures`.
- `tables`, `measures`, `notes`: what to join with the published results, see `_paper`; `_measure` lists the measures,
  and without any the accuracy of the evaluation's protocol is shown.

What a grid says outranks cases, and later cases outrank earlier ones.
"""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedblade.core.errors import Misconfigured, nearest
from fedblade.experiment._schema import FIXED, NAMED, ORDER, General

Raw = dict[str, Any]

WORDS: dict[str, type | tuple[type, ...]] = {
    "extends": str,
    "summary": str,
    "seeds": list,
    "grid": (dict, list),
    "cases": list,
    "tables": list,
    "measures": dict,
    "notes": dict,
    "baseline": str,
}
"""Words of a preset that are no settings of a run, and what they hold."""

LEVELS = {
    "dirichlet": "alpha",
    "dirichlet_clients": "alpha",
    "dirichlet_groups": "alpha",
    "labels": "classes_per_client",
    "pathological": "classes_per_client",
    "shards": "shards_per_client",
    "stochastic_removal": "shards_per_client",
}
"""The knob of a partition that says how skewed it is: the column `level` of published results."""


@dataclass(frozen=True)
class GridCell:
    """One setting of a preset: a run per seed.

    `config` holds the tables of a run; `axes` the cell's place in the grid, `columns` what it is called in published
    results where that differs from its configuration, `measures` how each published metric is computed, `chosen` the
    dotted keys that its place in the grid sets.
    """

    config: Raw
    seeds: tuple[int, ...]
    axes: Mapping[str, str]
    label: str | None
    columns: Mapping[str, str]
    measures: Mapping[str, Any]
    chosen: frozenset[str] = field(default=frozenset())


def expand(definition: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], name: str) -> list[GridCell]:
    """Every cell of a preset whose inheritance is resolved, in the order of its grid."""
    grids = definition.get("grid", {})
    tables = grids if isinstance(grids, list) else [grids]
    return [_cell(definition, point, name) for table in tables for point in _points(table, lists, name)]


def inherit(name: str, definitions: Mapping[str, Mapping[str, Any]], seen: tuple[str, ...] = ()) -> Raw:
    """A definition with what it extends below it: tables merged, cases appended, other words replaced."""
    if name not in definitions:
        raise Misconfigured(f"'{seen[-1]}' extends '{name}', which does not exist.{nearest(name, definitions)}")
    if name in seen:
        raise Misconfigured(f"preset '{name}' extends itself ({' > '.join((*seen, name))}). Break the circle.")
    own = copy.deepcopy(dict(definitions[name]))
    known = (*WORDS, *General.model_fields, *ORDER, "methods")
    for key, value in own.items():
        if key not in known:
            raise Misconfigured(f"unknown key '{key}' in '{name}'.{nearest(key, known)}")
        tables = value if key == "cases" or (key == "grid" and isinstance(value, list)) else ()
        if not isinstance(value, WORDS.get(key, object)) or not all(isinstance(each, dict) for each in tables):
            raise Misconfigured(f"{key} = {value!r} of '{name}' has the wrong shape. See the presets of the library.")
    parent = own.pop("extends", None)
    if parent is None:
        return own
    below = inherit(parent, definitions, (*seen, name))
    cases = [*below.pop("cases", []), *own.pop("cases", [])]
    below.pop("summary", None)
    words = {key: own.pop(key) for key in WORDS if key in own}
    return {**merge(below, own), **words, "cases": cases}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Raw:
    """Tables merged key by key, `above` winning; naming another part drops the knobs of the one before."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if not (isinstance(known, Mapping) and isinstance(value, Mapping)):
            merged[key] = copy.deepcopy(value)
            continue
        if key in NAMED and "name" in value and value["name"] != known.get("name"):
            known = {k: v for k, v in known.items() if k in NAMED[key].model_fields}
        merged[key] = merge(known, value)
    return merged


def lookup(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or at the `name` of a section; `base` is a method without its additions."""
    if key == "base":
        return str(lookup(config, "method")).partition("+")[0].removesuffix("-ft")
    value: Any = config
    for step in (f"{key}.name" if key in NAMED else key).split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def setting(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key of a fixed section, its default where the tables leave it out."""
    section, _, last = key.partition(".")
    value = lookup(config, key)
    return FIXED[section].model_fields[last].default if value is None else value


def show(value: Any) -> str:
    """A setting as text: 0.05, 10, cifar10."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class _Point:
    """A place in the grid: what it sets, its coordinates as text, and the label of a method variant."""

    settings: Raw
    axes: Raw
    label: str | None


def _points(grid: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], name: str) -> Iterator[_Point]:
    axes = {axis: _values(axis, given, lists, name) for axis, given in grid.items()}
    for values in itertools.product(*axes.values()):
        settings: Raw = {}
        shown: Raw = {}
        label = None
        for axis, value in zip(axes, values, strict=True):
            table = _settings(axis, value, name)
            label = table.pop("label", label)
            settings = merge(settings, table)
            shown[axis] = show(value) if not isinstance(value, Mapping) else (label or _short(table))
        yield _Point(settings, shown, label)


def _values(axis: str, given: Any, lists: Mapping[str, Sequence[Any]], name: str) -> list[Any]:
    if isinstance(given, str) and given.startswith("@"):
        if given[1:] not in lists:
            raise Misconfigured(f"grid.{axis} of '{name}' names the list '{given}'.{nearest(given[1:], lists)}")
        given = lists[given[1:]]
    values = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    nested = (
        _values(axis, each, lists, name) if isinstance(each, str) and each.startswith("@") else [each]
        for each in values
    )
    return [each for part in nested for each in part]


def _settings(axis: str, value: Any, name: str) -> Raw:
    """What a value of an axis sets, as nested tables."""
    if isinstance(value, Mapping):
        return copy.deepcopy(dict(value))
    if axis == "split":
        partition, _, level = str(value).partition(" ")
        number = float(level) if partition == "dirichlet" else int(level or 0)
        return {"partition": {"name": partition} | ({LEVELS[partition]: number} if level else {})}
    if axis == "seed":
        raise Misconfigured(f"seeds are no axis of '{name}': every cell is run with each of them. Use seeds = [1, 2].")
    path = f"{axis}.name" if axis in NAMED else axis
    if path.partition(".")[0] not in (*ORDER, *General.model_fields):
        raise Misconfigured(
            f"axis '{axis}' of '{name}' is no setting, and its value {value!r} is no table of settings. "
            f"Name a key such as local.epochs, or give tables."
        )
    return nest(path, value)


def nest(path: str, value: Any) -> Raw:
    """The nested tables that set one dotted key."""
    for step in reversed(path.split(".")):
        value = {step: value}
    return dict(value)


def _cell(definition: Mapping[str, Any], point: _Point, name: str) -> GridCell:
    base = {key: value for key, value in definition.items() if key not in WORDS}
    config = merge(base, point.settings)
    columns: Raw = {}
    measures: Raw = dict(definition.get("measures", {"accuracy": setting(base, "evaluation.protocol")}))
    label = point.label
    for case in definition.get("cases", []):
        if not matches(config, case.get("where", {})):
            continue
        config = merge(merge(config, case.get("set", {})), point.settings)
        columns |= case.get("columns", {})
        measures = dict(case.get("measures", measures))
        label = case.get("label", label)
    for key, template in definition.get("notes", {}).items():
        columns.setdefault("notes", template.replace("{}", show(lookup(config, key))))
    seeds = tuple(definition.get("seeds", (config.get("seed", 0),)))
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise Misconfigured(
            f"seeds = {list(seeds)} of '{name}' are no seeds; expected different whole numbers such as [1, 2]."
        )
    config.pop("seed", None)
    if lookup(config, "method") is None:
        raise Misconfigured(f"a cell of '{name}' has no method. Set method.name or an axis `method`.")
    axes = {axis: str(value) for axis, value in point.axes.items()}
    return GridCell(config, seeds, axes, label, columns, measures, frozenset(_leaves(point.settings)))


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys that nested tables set."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def matches(config: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether every key of `where` has the wanted value, or one of the wanted values."""
    return all(
        lookup(config, key) in (wanted if isinstance(wanted, list) else [wanted]) for key, wanted in where.items()
    )


def _short(table: Mapping[str, Any]) -> str:
    """A table of settings in few words, for the axis of a variant."""
    leaves = [
        _short(value) if isinstance(value, Mapping) else (show(value) if key == "name" else f"{key}={show(value)}")
        for key, value in table.items()
    ]
    return " ".join(leaves)
