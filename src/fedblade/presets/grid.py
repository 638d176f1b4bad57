"""From the tables of a grid preset to its cells.

A grid preset is data. It has the tables of a run's configuration and the keywords of `KEYWORDS`:

- `extends`: a block or preset that this one starts from. `summary`: one line for lists. `seeds`: one run per seed.
- `grid`: a table of axes. Every value of an axis is combined with every value of the others; a list of tables is the
  union of their cells. An axis is a key (`local.epochs`), a section (`dataset`, `model`, `method` with a name,
  `partition` with a name and a level: `"dirichlet 0.1"`), or any word whose values are tables of settings. Such a table
  may have a `label` for the method. `"@name"` stands for the list of that name under `[lists]`.
- `variants`: readings of the paper. A variant is a word with its values, the default first: `{split = ["client-wise",
  "class-wise"]}`. Every cell exists in every variant; `--where` chooses, and the default holds otherwise.
- `cases`: tables with `where` (keys or variants and the values that they must have) and the changes to the cells that
  match: `set`, `columns`, `measures`, `label`.
- `remark`: a sentence that every page of results repeats.
- `tables`, `measures`, `notes`: how cells are joined with the published results, see `fedblade.presets.published`.
  Without `measures` a table shows the accuracy of the evaluation's protocol.
- `baseline`: the method that speed-ups are relative to.

The grid overrules cases, and a later case overrules an earlier one.
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

KEYWORDS: dict[str, type | tuple[type, ...]] = {
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
"""Keys of a grid preset that are no settings of a run, and the types of their values."""


@dataclass(frozen=True)
class Cell:
    """One setting of a grid, run once per seed.

    `config` has the tables of a run, `axes` the values of the grid's axes as text, and `chosen` the dotted keys that
    the axes set. `columns` has the columns of published results that do not follow from the configuration, `label` the
    name of the method there, and `measures` how a published metric is computed. `variants` says which reading of the
    paper the cell is, and `unusual` names the variants that are not the default.
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


def expand(definition: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], name: str) -> list[Cell]:
    """Every cell of a preset that has inherited its blocks, in the order of the grid."""
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
    """A definition on top of what it extends: tables are merged, cases appended, other keywords replaced."""
    if name not in definitions:
        raise Misconfigured(f"'{seen[-1]}' extends '{name}', which does not exist.{nearest(name, definitions)}")
    if name in seen:
        raise Misconfigured(f"preset '{name}' extends itself ({' > '.join((*seen, name))}). Break the circle.")
    definition = copy.deepcopy(dict(definitions[name]))
    known = (*KEYWORDS, *General.model_fields, *ORDER, "methods")
    for key, value in definition.items():
        if key not in known:
            raise Misconfigured(f"unknown key '{key}' in '{name}'.{nearest(key, known)}")
        tables = value if key == "cases" or (key == "grid" and isinstance(value, list)) else ()
        if not isinstance(value, KEYWORDS.get(key, object)) or not all(isinstance(table, dict) for table in tables):
            raise Misconfigured(f"{key} = {value!r} of '{name}' has the wrong shape. See the presets of the library.")
    parent = definition.pop("extends", None)
    if parent is None:
        return definition
    below = inherit(parent, definitions, (*seen, name))
    cases = [*below.pop("cases", []), *definition.pop("cases", [])]
    below.pop("summary", None)
    replaced = {key: definition.pop(key) for key in KEYWORDS if key in definition}
    return {**merge(below, definition), **replaced, "cases": cases}


def _variants(given: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """Every combination of variants, the default first."""
    for word, values in given.items():
        if not (isinstance(values, list) and values and all(isinstance(value, str) for value in values)):
            raise Misconfigured(
                f"variants.{word} of '{name}' is {values!r}; expected a list of names, the default first."
            )
        if word in (*ORDER, *General.model_fields):
            raise Misconfigured(f"variants.{word} of '{name}' has the name of a setting. Choose another word.")
    return [dict(zip(given, chosen, strict=True)) for chosen in itertools.product(*given.values())]


def _cell(definition: Mapping[str, Any], point: Point, variants: Mapping[str, str], name: str) -> Cell:
    base = {key: value for key, value in definition.items() if key not in KEYWORDS}
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
    return Cell(
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
    """Check the seeds of a preset."""
    seeds = tuple(given)
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise Misconfigured(
            f"seeds = {list(seeds)} of '{name}' are no seeds; expected different whole numbers such as [1, 2]."
        )
    return seeds
