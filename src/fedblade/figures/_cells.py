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
    # The presets need torch, which nothing else in this package does.
    from fedblade.config.settings import lookup, setting
    from fedblade.presets.catalogue import load_grid

    def settings(cell: "Cell") -> dict[str, Any]:
        chosen = {key: lookup(cell.config, key) for key in cell.chosen}
        return chosen | {key: (setting if "." in key else lookup)(cell.config, key) for key in _SETTING}

    def fits(group: Group, cell: Mapping[str, Any]) -> bool:
        return all(lookup(group.runs[0].config, key) == value for key, value in cell.items())

    cells = load_grid(figure).cells
    for candidates in ([cell for cell in cells if not cell.unusual], cells):
        wanted = [settings(cell) for cell in candidates]
        if chosen := [group for group in groups if any(fits(group, cell) for cell in wanted)]:
            return chosen
    return list(groups)
