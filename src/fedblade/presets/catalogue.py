"""Presets shipped with the library, as data, and configuration files of the user's.

A preset is a single run (`quickstart`), or a grid of cells behind a table or figure of a paper. Grids live in one file
per paper; a file of the user's may hold grids too. `_grid` describes what such a file says.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest
from fedblade.presets.grid import WORDS, GridCell, expand, inherit
from fedblade.presets.names import NAMES

_FOLDER = resources.files("fedblade.presets") / "files"
_PAPERS = _FOLDER / "papers"
_RESULTS = _PAPERS / "results.csv"


@dataclass(frozen=True)
class Preset:
    """A grid of cells and what it is to be compared with.

    `group` names the folder of its runs, which presets of one paper share. `results` is the table of published
    numbers, `tables` the tables of `paper` in it, `labels` what the paper calls a partition, and `unmatched` which
    published rows have no cell, and why. `variants` are readings of the paper with the default first, and `remark` is
    what every page of results says of them.
    """

    id: str
    group: str
    summary: str
    remark: str
    variants: Mapping[str, tuple[str, ...]]
    cells: tuple[GridCell, ...]
    paper: str | None
    tables: tuple[str, ...]
    results: Traversable | None
    labels: Mapping[str, Mapping[str, str]]
    unmatched: tuple[Mapping[str, Any], ...]
    baseline: str | None


@dataclass(frozen=True)
class _Source:
    """A file of grids: its tables, the published results beside it, and the name of its folder of runs."""

    group: str
    raw: Mapping[str, Any]
    results: Traversable | None

    @property
    def presets(self) -> Mapping[str, Any]:
        """The presets by id."""
        found: Mapping[str, Any] = self.raw["presets"]
        return found

    def preset(self, name: str) -> Preset:
        """One preset, expanded."""
        id_ = self.raw.get("aliases", {}).get(name, name)
        definition = inherit(id_, {**self.raw.get("blocks", {}), **self.presets})
        return Preset(
            id=id_,
            group=self.group,
            summary=definition.get("summary", ""),
            remark=definition.get("remark", ""),
            variants={word: tuple(values) for word, values in definition.get("variants", {}).items()},
            cells=tuple(expand(definition, self.raw.get("lists", {}), id_)),
            paper=self.raw.get("paper"),
            tables=tuple(definition.get("tables", ())),
            results=self.results,
            labels=self.raw.get("labels", {}),
            unmatched=tuple(self.raw.get("unmatched", ())),
            baseline=definition.get("baseline"),
        )


def preset_names() -> list[str]:
    """Names of the shipped presets, other names of the same preset included."""
    return sorted((*_single_names(), *_shipped()))


def preset_summary(name: str) -> str:
    """What a shipped preset is, in one line."""
    if name in _single_names():
        first = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
        return first.lstrip("# ").strip()
    source = _shipped()[name]
    other = source.raw.get("aliases", {}).get(name)
    return f"the same as {other}" if other else str(source.presets[name].get("summary", ""))


def read_config(source: str | Path | None, where: Sequence[str] = ()) -> dict[str, Any]:
    """Raw tables of one run: of a preset, of a TOML file, or of the quickstart when nothing is named.

    Of a grid, `where` (as `column=value`) must leave one cell.
    """
    name = "quickstart" if source is None else str(source)
    if is_grid(name):
        from fedblade.presets.published import only_cell

        preset = load_preset(name)
        cell = only_cell(preset, where, name)
        return {"id": preset.id, "seed": cell.seeds[0], "seeds": list(cell.seeds), **cell.config}
    if where:
        raise Misconfigured(f"'{name}' is a single run, so there is nothing to choose with --where. Leave it out.")
    return _read(name)


def is_grid(source: str | Path) -> bool:
    """Whether a preset or file is a grid of cells rather than one run."""
    name = str(source)
    if name in _single_names():
        return False
    if name in _shipped():
        return True
    path = Path(_file_and_id(name)[0])
    return path.is_file() and _has_grid(_parse_file(path))


def load_preset(source: str | Path) -> Preset:
    """A grid by its id, or from a file of grids: `FILE.toml` with one preset, or `FILE.toml:ID`."""
    name = str(source)
    if name in _shipped():
        return _shipped()[name].preset(name)
    if name in _single_names():
        raise Misconfigured(f"'{name}' is a single run and no grid. Use `fedblade run {name}`.")
    file, id_ = _file_and_id(name)
    path = Path(file)
    if path.suffix != ".toml" and not path.is_file():
        raise Misconfigured(f"unknown preset '{name}'.{nearest(name, _shipped())}")
    raw = _read(file)
    if not _has_grid(raw):
        raise Misconfigured(f"'{name}' is a single run; expected a grid. Use `fedblade run` for it, or add [grid].")
    if "presets" not in raw:
        raw = {"presets": {path.stem: raw}}
    found = _Source(path.stem, raw, _results_of(raw, path))
    chosen = id_ or (next(iter(found.presets)) if len(found.presets) == 1 else "")
    if chosen not in found.presets and chosen not in raw.get("aliases", {}):
        raise Misconfigured(f"'{file}' has no preset '{chosen}'.{nearest(chosen, found.presets)}")
    return found.preset(chosen)


def _results_of(raw: Mapping[str, Any], path: Path) -> Traversable | None:
    """The published numbers for a file: the table it names, or the shipped one where it names a paper alone."""
    if "results" in raw:
        return path.parent / str(raw["results"])
    return _RESULTS if "paper" in raw else None


@cache
def _shipped() -> dict[str, _Source]:
    """The file of each shipped grid, by every name the grid has."""
    found: dict[str, _Source] = {}
    for item in sorted(_PAPERS.iterdir(), key=lambda each: each.name):
        if item.name.endswith(".toml") and item.name != NAMES:
            raw = _parse(item.read_text(encoding="utf-8"), item.name)
            source = _Source(item.name.removesuffix(".toml"), raw, _RESULTS)
            found |= dict.fromkeys((*raw["presets"], *raw.get("aliases", {})), source)
    return found


def _single_names() -> list[str]:
    return [item.name.removesuffix(".toml") for item in _FOLDER.iterdir() if item.name.endswith(".toml")]


def _has_grid(raw: Mapping[str, Any]) -> bool:
    return "presets" in raw or any(word in raw for word in WORDS if word not in ("seeds", "summary", "remark"))


def _file_and_id(name: str) -> tuple[str, str]:
    """`FILE.toml:ID` in two; without an id the second part is empty."""
    file, colon, id_ = name.rpartition(":")
    return (file, id_) if colon and file.endswith(".toml") else (name, "")


def _read(name: str) -> dict[str, Any]:
    """The tables of a single preset or of a file."""
    if name in _single_names():
        return _parse((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"), name)
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise Misconfigured(f"no such config file '{name}'. Give an existing .toml file or a preset.")
        return _parse_file(path)
    raise Misconfigured(f"unknown preset '{name}'.{nearest(name, preset_names())}")


def _parse_file(path: Path) -> dict[str, Any]:
    """The tables of a file of the user's."""
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"'{path}' cannot be read as UTF-8 text: {error}. Save it as UTF-8.") from error


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{name}' is not valid TOML: {error}. Mend the file.") from error
