"""Presets that come with the library, and configuration files of users.

A preset is a single run (`quickstart`) or a grid of cells, such as a table or figure of a paper. There is one file of
grids per paper; a user's file may have grids too. `fedblade.presets.grid` describes the format.
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.files import remedy
from fedblade.core.registry import datasets, methods, models
from fedblade.presets.grid import KEYWORDS, Cell, expand, inherit
from fedblade.presets.names import NAMES

_FOLDER = resources.files("fedblade.presets") / "files"
_PAPERS = _FOLDER / "papers"
_RESULTS = _PAPERS / "results.csv"


@dataclass(frozen=True)
class GridPreset:
    """A grid of cells, and the published numbers to compare them with.

    `group` names the folder of the runs, which presets of one paper share. `results` is the file of published numbers,
    `tables` are the tables of `paper` in that file, `labels` the paper's names of partitions, and `unmatched` the
    published numbers without a cell, with the reason. `variants` are readings of the paper, the default first, and
    `remark` is a sentence that every page of results repeats.
    """

    id: str
    group: str
    summary: str
    remark: str
    variants: Mapping[str, tuple[str, ...]]
    cells: tuple[Cell, ...]
    paper: str | None
    tables: tuple[str, ...]
    results: Traversable | None
    labels: Mapping[str, Mapping[str, str]]
    unmatched: tuple[Mapping[str, Any], ...]
    baseline: str | None


@dataclass(frozen=True)
class _GridFile:
    """A file of grids: the folder name of its runs, its tables, and the published numbers that belong to it."""

    group: str
    raw: Mapping[str, Any]
    results: Traversable | None

    @property
    def presets(self) -> Mapping[str, Any]:
        """The presets by id."""
        presets: Mapping[str, Any] = self.raw["presets"]
        return presets

    def preset(self, name: str) -> GridPreset:
        """The preset of this name or alias, with its cells."""
        id_ = self.raw.get("aliases", {}).get(name, name)
        definition = inherit(id_, {**self.raw.get("blocks", {}), **self.presets})
        return GridPreset(
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
    """Names and aliases of the presets that come with the library."""
    return sorted((*_single_names(), *_shipped()))


def preset_summary(name: str) -> str:
    """One line about a preset that comes with the library."""
    if name in _single_names():
        first = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
        return first.lstrip("# ").strip()
    grids = _shipped()[name]
    other = grids.raw.get("aliases", {}).get(name)
    return f"the same as {other}" if other else str(grids.presets[name].get("summary", ""))


def read_config(source: str | Path | None, where: Sequence[str] = ()) -> dict[str, Any]:
    """The raw tables of one run: of a preset, of a TOML file, or of `quickstart` if `source` is None.

    Of a grid, `where` (a list of `column=value`) must choose one cell.
    """
    name = "quickstart" if source is None else str(source)
    if is_grid(name):
        from fedblade.presets.published import only_cell

        preset = load_grid(name)
        cell = only_cell(preset, where, name)
        return {"id": preset.id, "seed": cell.seeds[0], "seeds": list(cell.seeds), **cell.config}
    if where:
        raise Misconfigured(f"'{name}' is a single run, so --where has nothing to choose from. Leave --where out.")
    return _read(name)


def is_grid(source: str | Path) -> bool:
    """Whether a preset or file is a grid of cells and not a single run."""
    name = str(source)
    if name in _single_names():
        return False
    if name in _shipped():
        return True
    path = Path(_file_and_id(name)[0])
    return path.is_file() and _has_grid(_parse_file(path))


def is_known(source: str | Path) -> bool:
    """Whether this is the name of a preset, or a file that is there."""
    return str(source) in preset_names() or Path(_file_and_id(str(source))[0]).is_file()


def refuse_grid(source: str | Path | None, advice: str) -> None:
    """Refuse a grid of several cells for a command that cannot choose a cell; `{}` in `advice` becomes the source."""
    if source is not None and is_grid(source) and len(load_grid(source).cells) > 1:
        num_cells = len(load_grid(source).cells)
        raise Misconfigured(f"'{source}' is a grid of {num_cells} cells. {advice.format(shlex.quote(str(source)))}")


def load_grid(source: str | Path) -> GridPreset:
    """A grid by its id, or from a file of grids: `FILE.toml` with one preset, or `FILE.toml:ID`."""
    name = str(source)
    if name in _shipped():
        return _shipped()[name].preset(name)
    if name in _single_names():
        raise Misconfigured(f"'{name}' is a single run; expected a grid. Use `fedblade run {name}`.")
    file, id_ = _file_and_id(name)
    path = Path(file)
    if path.suffix != ".toml" and not path.is_file():
        raise Misconfigured(f"unknown preset '{name}'.{nearest(name, _shipped())}")
    raw = _read(file)
    if not _has_grid(raw):
        raise Misconfigured(
            f"'{name}' is a single run; expected a grid. Use `fedblade run`, or add [grid] to the file."
        )
    if "presets" not in raw:
        raw = {"presets": {path.stem: raw}}
    grids = _GridFile(path.stem, raw, _results_of(raw, path))
    chosen = id_ or (next(iter(grids.presets)) if len(grids.presets) == 1 else "")
    if chosen not in grids.presets and chosen not in raw.get("aliases", {}):
        raise Misconfigured(f"'{file}' has no preset '{chosen}'.{nearest(chosen, grids.presets)}")
    return grids.preset(chosen)


def _results_of(raw: Mapping[str, Any], path: Path) -> Traversable | None:
    """The published numbers of a user's file: the file that it names, or the library's if it only names a paper."""
    if "results" in raw:
        return path.parent / str(raw["results"])
    return _RESULTS if "paper" in raw else None


@cache
def _shipped() -> dict[str, _GridFile]:
    """The files of the library's grids, by the names and aliases of the grids."""
    files: dict[str, _GridFile] = {}
    for item in sorted(_PAPERS.iterdir(), key=lambda item: item.name):
        if item.name.endswith(".toml") and item.name != NAMES:
            raw = _parse(item.read_text(encoding="utf-8"), item.name)
            grids = _GridFile(item.name.removesuffix(".toml"), raw, _RESULTS)
            files |= dict.fromkeys((*raw["presets"], *raw.get("aliases", {})), grids)
    return files


def _single_names() -> list[str]:
    return [item.name.removesuffix(".toml") for item in _FOLDER.iterdir() if item.name.endswith(".toml")]


def _has_grid(raw: Mapping[str, Any]) -> bool:
    return "presets" in raw or any(word in raw for word in KEYWORDS if word not in ("seeds", "summary", "remark"))


def _file_and_id(name: str) -> tuple[str, str]:
    """The two parts of `FILE.toml:ID`; the id may be empty."""
    file, colon, id_ = name.rpartition(":")
    return (file, id_) if colon and file.endswith(".toml") else (name, "")


def _read(name: str) -> dict[str, Any]:
    """The tables of a single run of the library, or of a file."""
    if name in _single_names():
        return _parse((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"), name)
    path = Path(name)
    if path.is_dir():
        raise Misconfigured(
            f"'{name}' is a folder; expected a config file or a preset. A run in it goes on with --resume --out DIR."
        )
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise Misconfigured(f"no such config file '{name}'. Give an existing .toml file or a preset.")
        return _parse_file(path)
    raise Misconfigured(f"unknown preset '{name}'.{_meant(name) or nearest(name, preset_names())}")


def _meant(name: str) -> str:
    """What a word was meant to be that stands where a preset is expected; empty if it is like nothing else."""
    if "=" in name:
        return f" A setting is changed with --set {shlex.quote(name)}."
    for kind, registry in {"method": methods, "dataset": datasets, "model": models}.items():
        if name in registry.names():
            return f" It is a {kind}: give {kind}='{name}' in Python, or --set {kind}={name} on the command line."
    return ""


def _parse_file(path: Path) -> dict[str, Any]:
    """The tables of a user's file."""
    try:
        # Some editors on Windows put a byte order mark first; TOML does not allow it.
        return _parse(path.read_text(encoding="utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise Misconfigured(f"'{path}' cannot be read as UTF-8 text: {error}. Save it as UTF-8.") from error
    except OSError as error:
        raise Misconfigured(f"'{path}' cannot be read ({error.strerror}). {remedy(error)}.") from error


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{name}' is not valid TOML: {error}. Correct the file.") from error
