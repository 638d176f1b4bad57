"""The runs of a reproduction: the chosen cells of a grid, their folders, and how the runs differ from the paper's."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.config.settings import LEVELS, lookup, setting, show
from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import GridPreset, load_grid
from fedblade.presets.grid import Cell
from fedblade.presets.published import IN_COLUMNS, Line, columns_of, lines_of, select
from fedblade.runs import ReuseCheck, folder_name
from fedblade.studies._measures import check_cell
from fedblade.studies._planned_run import PlannedRun
from fedblade.studies._table_columns import model_of_dataset

_NOT_IN_NAME = ("id", "seed", "seeds", "engine", "device", "checkpoint", "distributed")
"""Settings that do not change a run's numbers, and the seed, which the folder's name has anyway."""

_COLUMN_KEYS = (
    *(f"{kind}.name" for kind in ("dataset", "partition", "model", "method")),
    "federation.num_clients",
    "federation.clients_per_round",
)
"""Settings that are columns of published results."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its runs, one per seed. There are no runs if no metric of the cell comes from a run.

    `benchmarked` are the metrics that no run gives, with the command that measures them.
    """

    cell: Cell
    benchmarked: Mapping[str, str]
    runs: tuple[PlannedRun, ...]

    @property
    def pending(self) -> tuple[str, ...]:
        """The commands that give the cell's numbers, if no run gives any of them."""
        every = len(self.benchmarked) == len(self.cell.measures)
        return tuple(sorted(set(self.benchmarked.values()))) if every else ()


@dataclass(frozen=True)
class Reproduction:
    """The chosen lines of a paper's table, and the runs that give their numbers.

    `changes` says how the runs differ from the paper's. `absent` receives the data sets that are not on this machine,
    with what to do about them. `today` says which runs in the folder are of today's code and data.
    """

    preset: GridPreset
    lines: tuple[Line, ...]
    changes: tuple[str, ...]
    folder: Path
    plan_cell: Callable[[Cell], PlannedCell]
    absent: dict[str, str] = field(default_factory=dict)
    today: ReuseCheck = field(default_factory=ReuseCheck)
    _planned: dict[int, PlannedCell] = field(default_factory=dict)

    def planned(self, cell: Cell) -> PlannedCell:
        """The runs of a cell of the grid: a chosen cell, or the baseline of a chosen cell."""
        if id(cell) not in self._planned:
            self._planned[id(cell)] = self.plan_cell(cell)
        return self._planned[id(cell)]

    @property
    def cells(self) -> list[PlannedCell]:
        """The cells of the chosen lines, without repetition."""
        cells = {id(cell): cell for line in self.lines for cell in line.cells}
        return [self.planned(cell) for cell in cells.values()]

    @property
    def variant(self) -> str:
        """The variants that all chosen lines have in common, in words."""
        chosen = {word: {line.extra[word] for line in self.lines} for word in self.preset.variants}
        return ", ".join(f"{word} = {next(iter(values))}" for word, values in chosen.items() if len(values) == 1)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What every page of results says: the models and, of runs, the variants, the grid's remark and the changes."""
        models = model_of_dataset([line.facts for line in self.lines])
        of_runs = (self.variant, self.preset.remark, *self.changes) if self.runs else ()
        return tuple(filter(None, (models, *of_runs)))

    @property
    def pending(self) -> list[PlannedCell]:
        """The chosen cells whose numbers no run gives."""
        return [cell for cell in self.cells if cell.pending]

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs of the chosen cells, one per folder."""
        return list({run.folder: run for cell in self.cells for run in cell.runs}.values())

    @property
    def present_runs(self) -> list[PlannedRun]:
        """The runs whose data are on this machine."""
        return [run for run in self.runs if run.config.dataset.name not in self.absent]


def plan_reproduction(
    source: str | Path,
    *,
    where: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    seeds: Sequence[int] | None = None,
    out: Path | None = None,
) -> Reproduction:
    """Choose lines of a grid's table by `where`, and check the overrides.

    `rounds` and `seeds` make a reproduction shorter. Without `out`, presets of one paper share a folder, so that a cell
    of several tables runs once.
    """
    preset = load_grid(source)
    if rounds is not None and rounds < 1:
        raise Misconfigured(f"--rounds {rounds} leaves nothing to run; expected 1 or more.")
    _refuse_other_cells(preset, overrides or {})
    chosen = select(lines_of(preset), where)
    folder = out or Path("runs") / "papers" / preset.group
    changed = dict(overrides or {})

    def plan_cell(cell: Cell) -> PlannedCell:
        return _plan_cell(preset, cell, changed, rounds, seeds, folder / "cells")

    changes = _changes([cell for line in chosen for cell in line.cells], changed, rounds, seeds)
    return Reproduction(preset, tuple(chosen), tuple(changes), folder, plan_cell)


def cell_name(config: Mapping[str, Any]) -> str:
    """A readable name that ends in a digest of the configuration: cells of one configuration have one name."""
    partition = lookup(config, "partition")
    level = lookup(config, f"partition.{LEVELS[partition]}") if partition in LEVELS else None
    steps = setting(config, "local.steps")
    words = (
        lookup(config, "dataset"),
        f"{partition}{'' if level is None else show(float(level))}",
        f"{setting(config, 'federation.clients_per_round')}of{setting(config, 'federation.num_clients')}",
        lookup(config, "model"),
        folder_name(str(lookup(config, "method"))),
        f"e{setting(config, 'local.epochs')}" if steps == "none" else f"s{steps}",
        f"r{setting(config, 'federation.rounds')}",
    )
    kept = {key: value for key, value in config.items() if key not in _NOT_IN_NAME}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:6]
    return "-".join((*map(str, words), digest))


def _plan_cell(
    preset: GridPreset,
    cell: Cell,
    overrides: Mapping[str, Any],
    rounds: int | None,
    seeds: Sequence[int] | None,
    folder: Path,
) -> PlannedCell:
    planned = PlannedCell(cell, check_cell(cell), ())
    if planned.pending or all(measure == "prototype_kb" for measure in cell.measures.values()):
        return planned
    raw = apply_overrides(cell.config, overrides)
    full = setting(raw, "federation.rounds")
    raw["federation"] = {**raw.get("federation", {}), "rounds": min(full, rounds or full)}
    name = cell_name(raw)
    label = " ".join(filter(None, _label(preset, cell)))
    chosen = seeds or cell.seeds
    config = complete_config({**raw, "id": name, "seed": chosen[0]})
    runs = (
        PlannedRun(f"{label}, seed {seed}", folder / f"{name}-seed{seed}", config.with_seed(seed)) for seed in chosen
    )
    return replace(planned, runs=tuple(runs))


def _refuse_other_cells(preset: GridPreset, overrides: Mapping[str, Any]) -> None:
    """Refuse overrides of settings that tell the cells apart: their numbers would get the name of another cell."""
    keys = {key for cell in preset.cells for key in cell.chosen} | set(_COLUMN_KEYS)
    keys |= {f"partition.{knob}" for cell in preset.cells if (knob := LEVELS.get(lookup(cell.config, "partition")))}
    for given in overrides:
        if given in ("seed", "seeds"):
            raise Misconfigured(f"--set {given}=… has no effect, because the preset has a list of seeds. Use --seeds.")
        if any(f".{given}." in f".{key}." for key in keys):
            raise Misconfigured(
                f"--set {given}=… would change a setting that tells the cells of this preset apart. Use --where to "
                f"choose among its cells, or `fedblade run` for a setting that the preset does not have."
            )


def _label(preset: GridPreset, cell: Cell) -> Iterable[str]:
    columns = columns_of(cell, preset.labels)
    axes = {axis: value for axis, value in cell.axes.items() if "." in axis and axis not in IN_COLUMNS}
    extra = (f"{axis}={value}" for axis, value in {**cell.variants, **axes}.items())
    return (columns["method"], columns["dataset"], columns["partition"], columns["level"], *extra)


def _changes(
    cells: Sequence[Cell], overrides: Mapping[str, Any], rounds: int | None, seeds: Sequence[int] | None
) -> list[str]:
    """How the runs differ from those of the preset, in words."""
    changes = []
    full = sorted({setting(cell.config, "federation.rounds") for cell in cells})
    if rounds is not None and rounds < full[-1]:
        changes.append(f"shortened to {rounds} of {' or '.join(map(str, full))} rounds")
    usual = {cell.seeds for cell in cells}
    if seeds is not None and usual != {tuple(seeds)}:
        most = max(map(len, usual))
        fewer = f"{len(seeds)} of {most} seeds" if len(seeds) < most else "seeds"
        changes.append(f"{'shortened to ' if len(seeds) < most else 'other '}{fewer} ({', '.join(map(str, seeds))})")
    kept = {key: value for key, value in overrides.items() if key not in ("engine", "device")}
    changes += [f"{key} = {show(value)} instead of the preset's" for key, value in kept.items()]
    return changes
