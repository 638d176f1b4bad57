"""Every shipped grid, read once and shared by the tests here."""

from dataclasses import replace
from functools import cache

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import RunConfig, complete_config
from fedblade.presets.catalogue import GridPreset, is_grid, load_grid, preset_names
from fedblade.presets.grid import Cell
from fedblade.presets.published import Line, lines_of

GRIDS = [name for name in preset_names() if is_grid(name)]


@cache
def whole(name: str) -> GridPreset:
    """A shipped grid with every variant of every cell."""
    return load_grid(name)


@cache
def shipped(name: str) -> GridPreset:
    """A shipped grid in its default variant."""
    return replace(whole(name), cells=tuple(each for each in whole(name).cells if not each.unusual))


@cache
def lines(name: str) -> list[Line]:
    """The lines of a shipped grid."""
    return lines_of(shipped(name))


def cell(name: str, **columns: str) -> Cell:
    """The only cell of a grid with these columns of the published results."""
    found = {id(each): each for line in lines(name) if columns.items() <= line.facts.items() for each in line.cells}
    assert len(found) == 1, (name, columns, len(found))
    return next(iter(found.values()))


def settled(one: Cell) -> dict:
    """The tables of a run of the cell, the preset's values for its method put in."""
    return apply_overrides(one.config, {})


@cache
def configs(name: str) -> list[RunConfig]:
    """What the cells of a grid run with, in their order, checked."""
    return [complete_config({**settled(one), "seed": one.seeds[0]}) for one in shipped(name).cells]


__all__ = ["GRIDS", "cell", "configs", "lines", "settled", "shipped", "whole"]
