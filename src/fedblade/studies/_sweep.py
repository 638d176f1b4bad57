"""Grids over any keys of a configuration, and fair tuning: the same number of trials for every method.

Values are chosen by the accuracy the configuration's protocol reports. On a validation split the chosen values are then
run again and tested; without one the choice is made on the test set, which is optimistic and said so.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides, parse_assignment
from fedblade.config.run_config import complete_config
from fedblade.config.settings import show
from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import read_config
from fedblade.results import RunDirectory
from fedblade.runs import check_folder, folder_name
from fedblade.studies._cells import Cell
from fedblade.studies._measures import Value, over_seeds, read_finished

Values = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """A key and its values; with `method`, only that method has the axis."""

    key: str
    values: tuple[Any, ...]
    method: str | None = None


@dataclass(frozen=True)
class Trial:
    """One point of a grid and its runs, one per seed."""

    method: str
    values: Values
    runs: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """The method and what it was tried with."""
        return " ".join((self.method, *(f"{key}={show(value)}" for key, value in self.values.items())))

    def accuracy(self) -> Value | None:
        """Mean and deviation over the seeds that are finished."""
        found = [read_finished(run.folder) for run in self.runs]
        numbers = [run.summary["accuracy"] for run in found if run is not None and run.summary["accuracy"] is not None]
        return over_seeds(numbers) if numbers else None


def parse_axis(text: str) -> Axis:
    """`key=v1,v2`, or `method:key=v1,v2` for an axis that only one method has. Commas in brackets do not separate."""
    key, equals, values = text.partition("=")
    parts = [part.strip() for part in _split(values)] if equals else []
    if not key.strip() or not all(parts) or not parts:
        raise Misconfigured(f"--grid '{text}' is not an axis; expected key=v1,v2, such as --grid lr=0.01,0.1.")
    method, _, name = key.strip().rpartition(":")
    return Axis(name, tuple(parse_assignment(f"value={part}")[1] for part in parts), method or None)


def plan_sweep(
    source: str | Path | None,
    axes: Sequence[Axis],
    out: Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    where: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    uneven: bool = False,
    validation: bool = False,
) -> list[Trial]:
    """The trials of a grid, all configurations and folders checked before the first one starts.

    Methods must get the same number of trials, unless `uneven`. With `validation` accuracy is measured on samples that
    are held out of the clients' training data.
    """
    raw = read_config(source, where)
    base = dict(overrides or {})
    if validation:
        base["evaluation.on"] = "validation"
    single = [base.pop("seed")] if "seed" in base else None
    own_seeds = list(seeds or single or raw.get("seeds") or ())
    trials = [_trial(raw, base, values, own_seeds, out) for values in _points(axes)]
    if not uneven:
        _refuse_uneven(trials)
    for run in (run for trial in trials for run in trial.runs):
        check_folder(RunDirectory(run.folder), run.config, resume=True)
    return trials


def select_best(trials: Sequence[Trial]) -> dict[str, Trial]:
    """The trial with the highest mean accuracy of each method; the earlier one of equals."""
    best: dict[str, tuple[float, Trial]] = {}
    for trial in trials:
        value = trial.accuracy()
        if value is not None and (trial.method not in best or value.mean > best[trial.method][0]):
            best[trial.method] = (value.mean, trial)
    return {method: trial for method, (_, trial) in best.items()}


def on_test_set(trial: Trial) -> Trial:
    """The same trial trained on all of the clients' data and measured on the test set."""
    runs = []
    for run in trial.runs:
        table = run.config.table()
        table["evaluation"] = {**table["evaluation"], "on": "test"}
        runs.append(
            Cell(f"{run.label}, tested", run.folder.with_name(f"{run.folder.name}-tested"), complete_config(table))
        )
    return Trial(trial.method, trial.values, tuple(runs))


def _points(axes: Sequence[Axis]) -> list[Values]:
    """Every combination; the axis `method` comes first, and axes of one method multiply that method's part only."""
    if not axes:
        raise Misconfigured("nothing to sweep: expected at least one --grid key=v1,v2.")
    if any(axis.key in ("seed", "seeds") for axis in axes):
        raise Misconfigured("seeds are no axis: every trial is run with each of them. Use --seeds 5,6.")
    named = [axis for axis in axes if axis.key in ("method", "method.name")]
    own = dict.fromkeys(axis.method for axis in axes if axis.method is not None)
    names: Sequence[Any] = named[0].values if named else tuple(own) or (None,)
    strangers = [method for method in own if method not in names]
    if strangers:
        raise Misconfigured(
            f"--grid {strangers[0]}:… is for a method that --grid method=… does not name. Add it there."
        )
    points: list[Values] = []
    for name in names:
        mine = [axis for axis in axes if axis not in named and axis.method in (None, name)]
        chosen = {} if name is None else {"method": name}
        combinations = itertools.product(*(axis.values for axis in mine))
        points += [chosen | dict(zip((axis.key for axis in mine), each, strict=True)) for each in combinations]
    return points


def _trial(raw: Mapping[str, Any], base: Mapping[str, Any], values: Values, seeds: list[int], out: Path) -> Trial:
    table = apply_overrides(raw, {**base, **values})
    table.pop("seeds", None)
    first = complete_config(table)
    first.build_method()
    method, rest = first.method.name, {key: value for key, value in values.items() if key != "method"}
    stem = "-".join((folder_name(method), *(folder_name(f"{key}={show(rest[key])}") for key in sorted(rest))))
    runs = []
    for seed in seeds or [first.general.seed]:
        label = " ".join((method, *(f"{key}={show(value)}" for key, value in rest.items())))
        runs.append(Cell(f"{label}, seed {seed}", out / f"{stem}-seed{seed}", complete_config({**table, "seed": seed})))
    return Trial(method, rest, tuple(runs))


def _refuse_uneven(trials: Sequence[Trial]) -> None:
    budget: dict[str, int] = {}
    for trial in trials:
        budget[trial.method] = budget.get(trial.method, 0) + 1
    if len(set(budget.values())) > 1:
        shares = ", ".join(f"{method} {count}" for method, count in budget.items())
        raise Misconfigured(
            f"methods would not get the same number of trials ({shares}), so comparing their best would not be fair. "
            f"Give each as many values, or say --uneven."
        )


def _split(text: str) -> list[str]:
    """Parts between commas that are not inside brackets, braces or quotes."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == '"'
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts
