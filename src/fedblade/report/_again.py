"""How to run it again: the settings of every drawn group as a file to save, and the command for its seeds."""

import re
import shlex
from collections.abc import Sequence

import tomli_w

from fedblade.report._blocks import Block, Cell, Paragraph, SavedFile, Section, TableBlock, columns
from fedblade.report._selection import Selection
from fedblade.results import Group

_HEADINGS = ("method", "settings", "command")
_NOTE = (
    "Save the settings, and run the command in the same folder. The file has every setting of the run, defaults "
    "included. The same version of fedblade on the same kind of machine gives the same numbers. Files that the "
    "settings name, such as your own data or your own method, are needed as well."
)
_REST = "The settings of the other groups are in the run folders (`config.toml`)."
_ON_NODES = "Runs on nodes are started with `fedblade flower run`, and need the nodes with their data."


def run_again(shown: Selection) -> list[Section]:
    """A line for each group that the charts draw; nothing where no run has stored its settings."""
    groups = [(place, group) for place, group in enumerate(shown.drawn_groups) if group.runs[0].config]
    here = [(place, group) for place, group in groups if all(run.part("engine") != "flower" for run in group.runs)]
    names = _file_names([group for _, group in here])
    rows = [_cells(place, group, name) for (place, group), name in zip(here, names, strict=True)]
    blocks: list[Block] = []
    if rows:
        listed = TableBlock("Commands", columns(_HEADINGS, _HEADINGS), rows)
        blocks = [listed, Paragraph(_NOTE + (" " + _REST if shown.many else ""))]
    if len(here) < len(groups):
        blocks.append(Paragraph(_ON_NODES))
    return [Section("again", "Run it again", blocks)] if blocks else []


def command(group: Group, file: str) -> str:
    """The shell command that trains all runs of a group, whose settings are in the file."""
    seeds = list(dict.fromkeys(run.seed for run in group.runs if run.seed is not None))
    again = f"fedblade run {shlex.quote(file)}"
    if len(seeds) > 1:
        return f'for seed in {" ".join(map(str, seeds))}; do {again} --seed "$seed"; done'
    return f"{again} --seed {seeds[0]}" if seeds else again


def _cells(place: int, group: Group, name: str) -> list[Cell]:
    saved = SavedFile.of(name, tomli_w.dumps(dict(group.runs[0].config)), "application/toml")
    return [Cell(group.label, group=place), Cell(name, file=saved), Cell(command(group, name), code=True)]


def _file_names(groups: Sequence[Group]) -> list[str]:
    """The labels as names of files, with a number where two labels would give the same name."""
    names: list[str] = []
    for group in groups:
        plain = re.sub(r"[^A-Za-z0-9.+]+", "-", group.label).strip("-.") or "settings"
        taken = sum(name == f"{plain}.toml" or name.startswith(f"{plain}_") for name in names)
        names.append(f"{plain}_{taken + 1}.toml" if taken else f"{plain}.toml")
    return names
