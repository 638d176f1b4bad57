"""Cells of a preset as runs on disk: which they are, where they go, and how they differ from the paper's."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides
from fedblade.config.run_config import complete_config
from fedblade.config.settings import LEVELS, lookup, setting, show
from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import Preset, load_preset
from fedblade.presets.grid import GridCell
from fedblade.presets.published import IN_COLUMNS, Line, columns_of, lines_of, select
from fedblade.runs import ReuseCheck, folder_name
from fedblade.studies._cells import Cell
from fedblade.studies._columns import model_by_data
from fedblade.studies._pending import Readiness, readiness

_NOT_IN_NAME = ("id", "seed", "seeds", "engine", "device", "checkpoint", "distributed")
"""What does not change a run's numbers, or is named beside the rest."""

_COLUMN_KEYS = (
    *(f"{kind}.name" for kind in ("dataset", "partition", "model", "method")),
    "federation.num_clients",
    "federation.clients_per_round",
)
"""Settings that are columns of published results."""


@dataclass(frozen=True)
class Planned:
    """A cell of a preset and its runs, one per seed; none where no run gives its numbers."""

    cell: GridCell
    ready: Readiness
    name: str
    runs: tuple[Cell, ...]


@dataclass(frozen=True)
class Plan:
    """What `reproduce` is about to do.

    `lines` are the lines asked for. `changes` says how the runs differ from the paper's. `absent` fills with the data
    sets that are found missing, and what to do about each, and `today` tells which runs in the folder count.
    """

    preset: Preset
    lines: tuple[Line, ...]
    changes: tuple[str, ...]
    folder: Path
    plan_cell: Callable[[GridCell], Planned]
    absent: dict[str, str] = field(default_factory=dict)
    today: ReuseCheck = field(default_factory=ReuseCheck)
    _planned: dict[int, Planned] = field(default_factory=dict)

    def of(self, cell: GridCell) -> Planned:
        """The runs of a cell of the preset, whether it was asked for or another is compared with it."""
        if id(cell) not in self._planned:
            self._planned[id(cell)] = self.plan_cell(cell)
        return self._planned[id(cell)]

    def of_columns(self, cell: GridCell) -> dict[str, str]:
        """A cell's place in published results."""
        return columns_of(cell, self.preset.labels)

    @property
    def cells(self) -> list[Planned]:
        """Cells of the lines asked for, each once."""
        found = {id(cell): cell for line in self.lines for cell in line.cells}
        return [self.of(cell) for cell in found.values()]

    @property
    def variant(self) -> str:
        """The variant that all lines asked for have in common, in words; columns tell the others."""
        shared = {word: {line.extra[word] for line in self.lines} for word in self.preset.variants}
        return ", ".join(f"{word} = {next(iter(values))}" for word, values in shared.items() if len(values) == 1)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What every page of results says: the models, and of runs the variant, the preset's remark and the changes."""
        models = model_by_data([line.facts for line in self.lines])
        of_runs = (self.variant, self.preset.remark, *self.changes) if self.runs else ()
        return tuple(filter(None, (models, *of_runs)))

    @property
    def pending(self) -> list[Planned]:
        """Cells whose numbers no run gives."""
        return [each for each in self.cells if each.ready.missing]

    @property
    def runs(self) -> list[Cell]:
        """Runs of the cells asked for, each folder once."""
        return list({run.folder: run for each in self.cells for run in each.runs}.values())

    @property
    def present_runs(self) -> list[Cell]:
        """Runs whose data are on this machine."""
        return [run for run in self.runs if run.config.dataset.name not in self.absent]


def plan_reproduction(
    source: str | Path,
    *,
    where: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    seeds: Sequence[int] | None = None,
    out: Path | None = None,
) -> Plan:
    """Choose cells of a preset and check the configuration of every run before the first one starts.

    `rounds` and `seeds` shorten. Without `out`, presets of one paper share a folder and so find each other's runs.
    """
    preset = load_preset(source)
    if rounds is not None and rounds < 1:
        raise Misconfigured(f"--rounds {rounds} leaves nothing to run; expected 1 or more.")
    _refuse_other_cells(preset, overrides or {})
    chosen = select(lines_of(preset), where)
    folder = out or Path("runs") / "papers" / preset.group
    asked = dict(overrides or {})

    def plan_cell(cell: GridCell) -> Planned:
        return _planned(preset, cell, asked, rounds, seeds, folder / "cells")

    changes = _changes([cell for line in chosen for cell in line.cells], asked, rounds, seeds)
    return Plan(preset, tuple(chosen), tuple(changes), folder, plan_cell)


def cell_name(config: Mapping[str, Any]) -> str:
    """A readable name for a cell, the same wherever the same configuration occurs, ending in a digest of it."""
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


def _planned(
    preset: Preset,
    cell: GridCell,
    overrides: Mapping[str, Any],
    rounds: int | None,
    seeds: Sequence[int] | None,
    folder: Path,
) -> Planned:
    ready = readiness(cell)
    if ready.missing:
        return Planned(cell, ready, cell_name(apply_overrides(cell.config, {})), ())
    raw = apply_overrides(cell.config, overrides)
    full = setting(raw, "federation.rounds")
    raw["federation"] = {**raw.get("federation", {}), "rounds": min(full, rounds or full)}
    name = cell_name(raw)
    label = " ".join(filter(None, _label(preset, cell)))
    chosen = seeds or cell.seeds
    config = complete_config({**raw, "id": name, "seed": chosen[0]})
    runs = (Cell(f"{label}, seed {seed}", folder / f"{name}-seed{seed}", config.with_seed(seed)) for seed in chosen)
    return Planned(cell, ready, name, tuple(runs) if _needs_runs(cell) else ())


def _refuse_other_cells(preset: Preset, overrides: Mapping[str, Any]) -> None:
    """Refuse changes that would put numbers of another setting under a cell's name."""
    keys = {key for cell in preset.cells for key in cell.chosen} | set(_COLUMN_KEYS)
    keys |= {f"partition.{knob}" for cell in preset.cells if (knob := LEVELS.get(lookup(cell.config, "partition")))}
    for given in overrides:
        if given in ("seed", "seeds"):
            raise Misconfigured(f"--set {given}=… has no effect on a preset, which has seeds of its own. Use --seeds.")
        if any(f".{given}." in f".{key}." for key in keys):
            raise Misconfigured(
                f"--set {given}=… would put other settings under the names of this preset's cells. Use --where to "
                f"choose among its cells, or `fedblade run` for a setting that the preset does not have."
            )


def _needs_runs(cell: GridCell) -> bool:
    return any(how != "prototype_kb" for how in cell.measures.values())


def _label(preset: Preset, cell: GridCell) -> Iterable[str]:
    columns = columns_of(cell, preset.labels)
    axes = {axis: value for axis, value in cell.axes.items() if "." in axis and axis not in IN_COLUMNS}
    extra = (f"{axis}={value}" for axis, value in {**cell.variants, **axes}.items())
    return (columns["method"], columns["dataset"], columns["partition"], columns["level"], *extra)


def _changes(
    cells: Sequence[GridCell], overrides: Mapping[str, Any], rounds: int | None, seeds: Sequence[int] | None
) -> list[str]:
    """How the runs differ from what the preset says, in words."""
    changes = []
    full = sorted({setting(cell.config, "federation.rounds") for cell in cells})
    if rounds is not None and rounds < full[-1]:
        changes.append(f"shortened to {rounds} of {' or '.join(map(str, full))} rounds")
    usual = {cell.seeds for cell in cells}
    if seeds is not None and usual != {tuple(seeds)}:
        most = max(len(each) for each in usual)
        fewer = f"{len(seeds)} of {most} seeds" if len(seeds) < most else "seeds"
        changes.append(f"{'shortened to ' if len(seeds) < most else 'other '}{fewer} ({', '.join(map(str, seeds))})")
    kept = {key: value for key, value in overrides.items() if key not in ("engine", "device")}
    changes += [f"{key} = {show(value)} instead of the preset's" for key, value in kept.items()]
    return changes
