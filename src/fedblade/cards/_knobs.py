"""A method's knobs: the library's defaults, and the values that presets use instead."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedblade.config.overrides import apply_overrides
from fedblade.config.reference import method_settings
from fedblade.config.run_config import knob_tables
from fedblade.core.nested import dotted
from fedblade.methods import compose
from fedblade.presets.catalogue import is_grid, load_grid, preset_names, read_config

Flat = dict[str, Any]


@dataclass(frozen=True)
class Knob:
    """A knob: its dotted key, its default, and by paper the values of the paper's presets, if one differs.

    `type` and `meaning` are words for a page.
    """

    key: str
    default: Any
    presets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    type: str = ""
    meaning: str = ""


def knobs_of(name: str) -> tuple[Knob, ...]:
    """The knobs of a method, and of its regularisers under their names, in the order of the signatures.

    Values that a preset varies on purpose, in an ablation or a study of sensitivity, are left out.
    """
    composition, defaults = compose(name), dotted(knob_tables(name))
    known = method_settings(composition.base, composition.added)
    settings = {setting.name.removeprefix("method."): setting for setting in known}
    used = {paper: [defaults | table for table in tables] for paper, tables in _preset_settings().get(name, {}).items()}
    return tuple(
        Knob(
            key,
            default,
            {paper: values for paper, flats in used.items() if (values := _other_values(key, default, flats))},
            settings[key].type,
            settings[key].meaning,
        )
        for key, default in defaults.items()
    )


def _other_values(key: str, default: Any, flats: list[Flat]) -> tuple[Any, ...]:
    """The different values of a key; empty if all are the default."""
    values: list[Any] = []
    for flat in flats:
        if flat[key] not in values:
            values.append(flat[key])
    if values == [default]:
        return ()
    comparable = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return tuple(sorted(values) if comparable else values)


@cache
def _preset_settings() -> dict[str, dict[str, list[Flat]]]:
    """By method and paper, the different knobs that cells set. A single run has its name in place of a paper."""
    by_method: dict[str, dict[str, list[Flat]]] = {}
    for name, label, settings in _all_settings():
        known = by_method.setdefault(name, {}).setdefault(label, [])
        flat = dotted(settings)
        if flat not in known:
            known.append(flat)
    return by_method


def _all_settings() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Method, paper and knobs of every cell that varies no knob, and of the library's single runs."""
    for preset in preset_names():
        if not is_grid(preset):
            for method, settings in read_config(preset).get("methods", {}).items():
                yield method, preset, settings
            continue
        grid = load_grid(preset)
        for cell in grid.cells:
            varied = {key for key in cell.chosen if key.startswith("method.")} - {"method.name"}
            if not varied:
                settings = dict(apply_overrides(cell.config, {})["method"])
                yield settings.pop("name"), grid.paper or grid.id, settings
