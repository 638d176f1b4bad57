"""Which of many runs belong to a paper's figure: presets of one paper share a folder."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedblade.results import Group

if TYPE_CHECKING:
    from fedblade.presets.grid import Cell

_SETTING = ("partition", "model", "federation.num_clients", "federation.clients_per_round", "local.epochs")


def choose_cells(figure: str, groups: Sequence[Group]) -> list[Group]:
    """The groups that are cells of the figure's preset in its default variant, else in another, else all groups.

    A run shortened by `--rounds` still belongs to its cell.
    """
    # The presets need torch, which nothing else here does.
    from fedblade.config.settings import lookup, setting
    from fedblade.presets.catalogue import load_grid

    def facts(cell: "Cell") -> dict[str, Any]:
        own = {key: setting(cell.config, key) if "." in key else lookup(cell.config, key) for key in _SETTING}
        return {key: lookup(cell.config, key) for key in cell.chosen} | own

    cells = load_grid(figure).cells
    for some in ([cell for cell in cells if not cell.unusual], cells):
        known = [facts(cell) for cell in some]
        if chosen := [group for group in groups if any(_fits(group, own) for own in known)]:
            return chosen
    return list(groups)


def _fits(group: Group, facts: Mapping[str, Any]) -> bool:
    # The presets need torch, which nothing else here does.
    from fedblade.config.settings import lookup

    return all(lookup(group.runs[0].config, key) == value for key, value in facts.items())
