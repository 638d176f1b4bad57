"""Which of many runs belong to a paper's figure: presets of one paper share a folder."""

from collections.abc import Sequence

from fedblade.report._groups import Group

_SETTING = ("model", "federation.num_clients", "federation.clients_per_round", "local.epochs")


def choose_cells(figure: str, groups: Sequence[Group]) -> list[Group]:
    """The groups that are cells of the figure's preset, or all groups where none is one.

    A run shortened by `--rounds` still belongs to its cell.
    """
    # The presets need torch, which nothing else here does.
    from fedblade.experiment._grid import lookup, setting
    from fedblade.experiment._presets import load_preset

    cells = [
        {key: lookup(cell.config, key) for key in cell.chosen}
        | {key: setting(cell.config, key) if "." in key else lookup(cell.config, key) for key in _SETTING}
        for cell in load_preset(figure).cells
    ]
    chosen = [
        group
        for group in groups
        if any(all(lookup(group.runs[0].config, key) == value for key, value in cell.items()) for cell in cells)
    ]
    return chosen or list(groups)
