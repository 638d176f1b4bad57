"""From a preset's tables to its cells: blocks are inherited, lists of the grid multiply, cases change settings.

A preset is data. Its tables are those of a run's configuration, and beside them stand the words in `WORDS`:

- `extends`: a block or preset whose tables come first; `summary`: one line for lists; `seeds`: one run each.
- `grid`: axes, every value with every other; a list of such tables is a union. An axis is a key (`local.epochs`), a
  section (`dataset`, `model`, `method`: its name; `partition`: its name and level, `"dirichlet 0.1"`), or any word
  whose values are tables of settings; such a table may carry the `label` of the method. `"@name"` stands for a list
  under `[lists]`.
- `variants`: readings of the paper, each a word with its values, the default first: `{split = ["client-wise",
  "class-wise"]}`. Every cell exists in every variant; `--where` chooses among them, and without it the default holds.
- `cases`: `where` (keys or variants, and the value or values they must have) and what then holds: `set`, `columns`,
  `measures`.
- `remark`: a sentence that every page of results repeats.
- `tables`, `measures`, `notes`: what to join with the published results, see `_paper`; `_measure` lists the measures,
  and without any the accuracy of the evaluation's protocol is shown.

What a grid says outranks cases, and later cases outrank earlier ones.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedblade.config.schema import ORDER, General
from fedblade.config.settings import Raw, lookup, matches, merge, setting, show
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.nested import dotted
from fedblade.presets._axes import Point, points

WORDS: dict[str, type | tuple[type, ...]] = {
    "extends": str,
    "summary": str,
    "remark": str,
    "seeds": list,
    "variants": dict,
    "grid": (dict, list),
    "cases": list,
    "tables": list,
    "measures": dict,
    "notes": dict,
    "baseline": str,
}
"""Words of a preset that are no settings of a run, and what they hold."""


@dataclass(frozen=True)
class GridCell:
    """One setting of a preset: a run per seed.

    `config` holds the tables of a run; `axes` the cell's place in the grid, `columns` what it is called in published
    results where that differs from its configuration, `measures` how each published metric is computed, `chosen` the
    dotted keys that its place in the grid sets. `variants` says which reading of the paper it is, and `unusual` in
    which of these words it is not the default.
    """

    config: Raw
    seeds: tuple[int, ...]
    axes: Mapping[str, str]
    label: str | None
    columns: Mapping[str, str]
    measures: Mapping[str, Any]
    chosen: frozenset[str] = frozenset()
    variants: Mapping[str, str] = field(default_factory=dict)
    unusual: frozenset[str] = frozenset()


def expand(definition: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], name: str) -> list[GridCell]:
    """Every cell of a preset whose inheritance is resolved, in the order of its grid."""
    grids = definition.get("grid", {})
    tables = grids if isinstance(grids, list) else [grids]
    variants = _variants(definition.get("variants", {}), name)
    return [
        _cell(definition, point, chosen, name)
        for table in tables
        for point in points(table, lists, name)
        for chosen in variants
    ]


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


def _variants(given: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """Every choice among the variants, the default one first."""
    for word, values in given.items():
        if not (isinstance(values, list) and values and all(isinstance(each, str) for each in values)):
            raise Misconfigured(
                f"variants.{word} of '{name}' is {values!r}; expected a list of names, the default first."
            )
        if word in (*ORDER, *General.model_fields):
            raise Misconfigured(f"variants.{word} of '{name}' has the name of a setting. Choose another word.")
    return [dict(zip(given, chosen, strict=True)) for chosen in itertools.product(*given.values())]


def _cell(definition: Mapping[str, Any], point: Point, variants: Mapping[str, str], name: str) -> GridCell:
    base = {key: value for key, value in definition.items() if key not in WORDS}
    config = merge(base, point.settings)
    columns: Raw = {}
    measures: Raw = dict(definition.get("measures", {"accuracy": setting(base, "evaluation.protocol")}))
    label = point.label
    for case in definition.get("cases", []):
        if not matches({**config, **variants}, case.get("where", {})):
            continue
        config = merge(merge(config, case.get("set", {})), point.settings)
        columns |= case.get("columns", {})
        measures = dict(case.get("measures", measures))
        label = case.get("label", label)
    for key, template in definition.get("notes", {}).items():
        columns.setdefault("notes", template.replace("{}", show(lookup(config, key))))
    seeds = _seeds(definition.get("seeds", (config.pop("seed", 0),)), name)
    if lookup(config, "method") is None:
        raise Misconfigured(f"a cell of '{name}' has no method. Set method.name or an axis `method`.")
    return GridCell(
        config=config,
        seeds=seeds,
        axes={axis: str(value) for axis, value in point.axes.items()},
        label=label,
        columns=columns,
        measures=measures,
        chosen=frozenset(dotted(point.settings)),
        variants=variants,
        unusual=frozenset(word for word, value in variants.items() if value != definition["variants"][word][0]),
    )


def _seeds(given: Sequence[Any], name: str) -> tuple[int, ...]:
    """Seeds as they were given, if they are seeds."""
    seeds = tuple(given)
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise Misconfigured(
            f"seeds = {list(seeds)} of '{name}' are no seeds; expected different whole numbers such as [1, 2]."
        )
    return seeds
