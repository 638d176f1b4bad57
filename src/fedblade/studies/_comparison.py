"""Several runs in one folder: methods × seeds, each resumable, finished ones skipped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.results import RunDirectory
from fedblade.runs import check_folder, folder_name, load_config
from fedblade.studies._cells import Cell


def plan_comparison(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int] | None,
    out: Path,
) -> list[Cell]:
    """The runs of a comparison, all configurations and folders checked before the first one starts."""
    cells: list[Cell] = []
    for method in methods:
        _, suggested = load_config(source, {**overrides, "method": method})
        for seed in seeds or suggested:
            config, _ = load_config(source, {**overrides, "method": method, "seed": seed})
            folder = out / f"{folder_name(method)}-seed{seed}"
            config.build_method()
            check_folder(RunDirectory(folder), config, resume=True)
            cells.append(Cell(f"{method} seed {seed}", folder, config))
    return cells
