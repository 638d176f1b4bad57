"""Several runs in one folder: methods × seeds, each resumable, finished ones skipped."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.experiment._config import RunConfig
from fedblade.experiment._driver import Watcher
from fedblade.experiment._run import Result, execute, folder_name, load_config


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    label: str
    folder: Path
    config: RunConfig


def plan_comparison(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int] | None,
    out: Path,
) -> list[Cell]:
    """The runs of a comparison, all configurations checked before the first one starts."""
    cells: list[Cell] = []
    for method in methods:
        _, suggested = load_config(source, {**overrides, "method": method})
        for seed in seeds or suggested:
            config, _ = load_config(source, {**overrides, "method": method, "seed": seed})
            cells.append(Cell(f"{method} seed {seed}", out / f"{folder_name(method)}-seed{seed}", config))
    return cells


def run_comparison(cells: Sequence[Cell], watch: Callable[[str], AbstractContextManager[Watcher]]) -> list[Result]:
    """Run every cell; what is already finished is read back."""
    results: list[Result] = []
    for number, cell in enumerate(cells, start=1):
        with watch(f"{cell.label} ({number}/{len(cells)})") as watcher:
            results.append(execute(cell.config, out=cell.folder, resume=True, watcher=watcher))
    return results
