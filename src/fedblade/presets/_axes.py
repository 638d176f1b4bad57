"""The points of a grid: every value of an axis with every value of the other axes."""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedblade.config.schema import NAMED, ORDER, General
from fedblade.config.settings import LEVELS, Raw, merge, nest, show
from fedblade.core.errors import Misconfigured, nearest


@dataclass(frozen=True)
class Point:
    """A point of a grid: the settings, the values of the axes as text, and the label of a method variant."""

    settings: Raw
    axes: Raw
    label: str | None


def points(grid: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], name: str) -> Iterator[Point]:
    """Every point of a grid; the last axis varies fastest."""
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
        yield Point(settings, shown, label)


def _values(axis: str, given: Any, lists: Mapping[str, Sequence[Any]], name: str) -> list[Any]:
    """The values of an axis, with `@name` replaced by the values of that list."""
    if isinstance(given, str) and given.startswith("@"):
        if given[1:] not in lists:
            raise Misconfigured(f"grid.{axis} of '{name}' names the list '{given}'.{nearest(given[1:], lists)}")
        given = lists[given[1:]]
    values = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    nested = (
        _values(axis, value, lists, name) if isinstance(value, str) and value.startswith("@") else [value]
        for value in values
    )
    return [value for part in nested for value in part]


def _settings(axis: str, value: Any, name: str) -> Raw:
    """The settings of one value of an axis, as nested tables."""
    if isinstance(value, Mapping):
        return copy.deepcopy(dict(value))
    if axis == "partition":
        return {"partition": _partition(str(value), name)}
    if axis == "seed":
        raise Misconfigured(f"seeds are no axis of '{name}': every cell runs with every seed. Use seeds = [1, 2].")
    if axis == "split":
        raise Misconfigured(f"axis 'split' of '{name}' is no setting. Name it partition.")
    path = f"{axis}.name" if axis in NAMED else axis
    if path.partition(".")[0] not in (*ORDER, *General.model_fields):
        raise Misconfigured(
            f"axis '{axis}' of '{name}' is no setting, and its value {value!r} is no table of settings. "
            f"Name a key such as local.epochs, or write its values as tables of settings."
        )
    return nest(path, value)


def _partition(text: str, name: str) -> Raw:
    """The settings of a partition and its level, written as `dirichlet 0.1`, `shards 10` or `iid`."""
    kind, _, level = text.partition(" ")
    if not level:
        return {"name": kind}
    try:
        knob = LEVELS[kind]
        return {"name": kind, knob: float(level) if knob == "alpha" else int(level)}
    except (KeyError, ValueError) as error:
        raise Misconfigured(
            f"axis partition of '{name}' has the value '{text}'; expected a partition and its level, such as "
            f"'dirichlet 0.1' or 'shards 10'."
        ) from error


def _short(table: Mapping[str, Any]) -> str:
    """A table of settings in few words."""
    leaves = [
        _short(value) if isinstance(value, Mapping) else (show(value) if key == "name" else f"{key}={show(value)}")
        for key, value in table.items()
    ]
    return " ".join(leaves)
