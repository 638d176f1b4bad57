"""Settings of a run as nested tables: merged, read at dotted keys, shown as text."""

import copy
from collections.abc import Mapping
from typing import Any

from fedblade.config.schema import FIXED, NAMED
from fedblade.core.registry import Registry, datasets, models, participations, partitions

Raw = dict[str, Any]
"""Settings as nested tables, as in a TOML file."""
REGISTRIES: dict[str, Registry] = {
    "dataset": datasets, "partition": partitions, "participation": participations, "model": models,
}  # fmt: skip

NOTES = "notes"
"""The key of `Notes` in tables."""

LEVELS = {
    "dirichlet": "alpha",
    "dirichlet_clients": "alpha",
    "dirichlet_groups": "alpha",
    "labels": "classes_per_client",
    "pathological": "classes_per_client",
    "shards": "shards_per_client",
    "stochastic_removal": "shards_per_client",
}
"""The knob of a partition that sets its skew: the column `level` of published results."""


class Notes(tuple[str, ...]):
    """Lines for the user on settings that the library has changed; in tables, but in no file."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Raw:
    """Merge tables key by key; `above` wins. If `above` names another part, the knobs of the part in `below` go."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if not (isinstance(known, Mapping) and isinstance(value, Mapping)):
            merged[key] = copy.deepcopy(value)
            continue
        if key in NAMED and "name" in value and value["name"] != known.get("name"):
            known = without_knobs(key, known)
        merged[key] = merge(known, value)
    return merged


def without_knobs(kind: str, table: Mapping[str, Any]) -> Raw:
    """The settings of a section without the knobs of its part, such as to name another part.

    If a knob and a setting have the same name, the key is the knob.
    """
    name, registry = table.get("name"), REGISTRIES.get(kind)
    knobs = registry.get(name).knobs() if registry is not None and name in registry.names() else {}
    return {key: value for key, value in table.items() if key in NAMED[kind].model_fields and key not in knobs}


def lookup(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or the name of a section's part. `base` is the method without added regularisers."""
    if key == "base":
        return str(lookup(config, "method")).partition("+")[0].removesuffix("-ft")
    value: Any = config
    for step in (f"{key}.name" if key in NAMED else key).split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def setting(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key of a fixed section; its default if the tables do not have the key."""
    section, _, last = key.partition(".")
    value = lookup(config, key)
    return FIXED[section].model_fields[last].default if value is None else value


def show(value: Any) -> str:
    """A value as text: 0.05, 10, cifar10."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def nest(path: str, value: Any) -> Raw:
    """The nested tables that set one dotted key."""
    for step in reversed(path.split(".")):
        value = {step: value}
    return dict(value)


def matches(config: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether every key of `where` has the value there, or one of the values there."""
    return all(
        lookup(config, key) in (wanted if isinstance(wanted, list) else [wanted]) for key, wanted in where.items()
    )
