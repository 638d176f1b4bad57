"""Sweeps: a grid over keys that the user names, with the same number of trials for every method, and their table.

The best trial of a method has the highest accuracy by the configuration's protocol. With a validation split the best
trial is trained again and tested. Without one the test set chooses, which is optimistic; the command says so.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedblade.config.overrides import apply_overrides, name_keys, parse_assignment
from fedblade.config.run_config import complete_config
from fedblade.config.settings import show
from fedblade.core.errors import Misconfigured
from fedblade.methods import compose
from fedblade.presets.catalogue import read_config
from fedblade.results import Table, short_names
from fedblade.runs import check_folder, folder_name
from fedblade.studies._measures import Measurement, over_seeds, read_finished
from fedblade.studies._planned_run import PlannedRun

Values = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """A key and its values; an axis with a `method` belongs to that method only."""

    key: str
    values: tuple[Any, ...]
    method: str | None = None


@dataclass(frozen=True)
class Trial:
    """One cell of a sweep: a method, the values of its keys, and one run per seed."""

    method: str
    values: Values
    runs: tuple[PlannedRun, ...]

    @property
    def label(self) -> str:
        """The method and the values."""
        return " ".join((self.method, *(f"{key}={show(value)}" for key, value in self.values.items())))

    def accuracy(self) -> Measurement | None:
        """Mean and deviation over the seeds that are finished."""
        finished = (read_finished(run.folder) for run in self.runs)
        accuracies = [run.summary["accuracy"] for run in finished if run is not None]
        numbers = [accuracy for accuracy in accuracies if accuracy is not None]
        return over_seeds(numbers) if numbers else None

    def on_test_set(self) -> "Trial":
        """The same trial, trained on all of the clients' data and measured on the test set."""
        return replace(self, runs=tuple(map(_tested, self.runs)))


def parse_axis(text: str) -> Axis:
    """Read `key=v1,v2`, or `method:key=v1,v2` for an axis of one method. Commas in brackets do not separate."""
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
) -> list[Trial]:
    """The trials of a sweep; all configurations and folders are checked before the first run starts.

    Methods must get the same number of trials, unless `uneven`.
    """
    raw = read_config(source, where)
    base = dict(overrides or {})
    single = [base.pop("seed")] if "seed" in base else None
    chosen_seeds = list(seeds or single or raw.get("seeds") or ())
    trials = [_trial(raw, base, values, chosen_seeds, out) for values in _combinations(axes)]
    if not uneven:
        _refuse_uneven(trials)
    for run in (run for trial in trials for run in trial.runs):
        check_folder(run.directory, run.config, resume=True)
    return trials


def tuning_axes(source: str | Path | None, where: Sequence[str], changes: Values, axes: Sequence[Axis]) -> list[Axis]:
    """The axes, and the search space of every method of the sweep. An axis that is given goes before the space's."""
    tables = apply_overrides(
        read_config(source, where), {key: changes[key] for key in name_keys("method") & changes.keys()}
    )
    named = [value for axis in axes if axis.key in name_keys("method") for value in axis.values]
    own = [axis.method for axis in axes if axis.method is not None]
    methods: Sequence[str | None] = list(dict.fromkeys(named or own)) or [None]
    spaces = []
    for method in methods:
        given = {axis.key.removeprefix("method.") for axis in axes if axis.method in (None, method)}
        space = compose(tables["method"]["name"] if method is None else method).search_space
        spaces += [Axis(key, values, method) for key, values in space.items() if key not in given]
    return [*axes, *spaces]


def select_best(trials: Sequence[Trial]) -> dict[str, Trial]:
    """By method, the trial with the highest mean accuracy; of equal trials the earlier one."""
    best: dict[str, tuple[float, Trial]] = {}
    for trial in trials:
        accuracy = trial.accuracy()
        if accuracy is not None and (trial.method not in best or accuracy.mean > best[trial.method][0]):
            best[trial.method] = (accuracy.mean, trial)
    return {method: trial for method, (_, trial) in best.items()}


def sweep_table(trials: Sequence[Trial], best: Mapping[str, Trial], on: str) -> Table:
    """One row per trial; the best trials are marked. The note says what the numbers are."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.values))
    numeric = [*(key.rpartition(".")[2] for key in keys), "runs", "accuracy"]
    methods = short_names([trial.method for trial in trials])
    rows = []
    for trial in trials:
        accuracy = trial.accuracy()
        mark = "* " if best.get(trial.method) is trial else ""
        text = "–" if accuracy is None else mark + accuracy.text()
        finished = f"{0 if accuracy is None else accuracy.runs}/{len(trial.runs)}"
        rows.append([methods[trial.method], *(value_text(trial, key) for key in keys), finished, text])
    spread = ", mean ± std over seeds (n−1)" if any(len(trial.runs) > 1 for trial in trials) else ""
    chosen = "; * chosen" if best else ""
    warning = " on the test set, so these are optimistic" if best and on == "test" else ""
    note = f"accuracy in % on the {on} set{spread}{chosen}{warning}"
    return Table.of_texts(["method", *numeric], rows, numeric, (note,))


def value_text(trial: Trial, key: str) -> str:
    """The value of a key in a trial, empty if the trial does not have the key."""
    return show(trial.values[key]) if key in trial.values else ""


def _tested(run: PlannedRun) -> PlannedRun:
    table = run.config.table()
    table["evaluation"] = {**table["evaluation"], "on": "test"}
    return PlannedRun(f"{run.label}, tested", run.folder.with_name(f"{run.folder.name}-tested"), complete_config(table))


def _combinations(axes: Sequence[Axis]) -> list[Values]:
    """Every combination of values, method by method; an axis of one method multiplies that method's trials only."""
    if not axes:
        raise Misconfigured(
            "nothing to sweep: expected at least one --grid key=v1,v2 (in Python, grid={'key': [v1, v2]}), or --tune "
            "(tune=True)."
        )
    if any(axis.key in ("seed", "seeds") for axis in axes):
        raise Misconfigured("seeds are no axis: every trial runs with every seed. Use --seeds 5,6.")
    twice = next((axis for axis, count in Counter((axis.key, axis.method) for axis in axes).items() if count > 1), None)
    if twice is not None:
        raise Misconfigured(f"'{twice[0]}' is an axis twice. Give all its values to one axis: --grid {twice[0]}=v1,v2.")
    named = [axis for axis in axes if axis.key in name_keys("method")]
    with_axes = dict.fromkeys(axis.method for axis in axes if axis.method is not None)
    methods: Sequence[Any] = named[0].values if named else tuple(with_axes) or (None,)
    unnamed = [method for method in with_axes if method not in methods]
    if unnamed:
        raise Misconfigured(f"--grid {unnamed[0]}:… is for a method that --grid method=… does not name. Add it there.")
    combinations: list[Values] = []
    for method in methods:
        used = [axis for axis in axes if axis not in named and axis.method in (None, method)]
        chosen = {} if method is None else {"method": method}
        products = itertools.product(*(axis.values for axis in used))
        combinations += [chosen | dict(zip((axis.key for axis in used), values, strict=True)) for values in products]
    return combinations


def _trial(raw: Mapping[str, Any], base: Mapping[str, Any], values: Values, seeds: list[int], out: Path) -> Trial:
    table = apply_overrides(raw, {**base, **values})
    table.pop("seeds", None)
    first = complete_config(table)
    first.build_method()
    method, rest = first.method.name, {key: value for key, value in values.items() if key != "method"}
    stem = "-".join((folder_name(method), *(folder_name(f"{key}={show(rest[key])}") for key in sorted(rest))))
    trial = Trial(method, rest, ())
    runs = (
        PlannedRun(f"{trial.label}, seed {seed}", out / f"{stem}-seed{seed}", complete_config({**table, "seed": seed}))
        for seed in seeds or [first.general.seed]
    )
    return replace(trial, runs=tuple(runs))


def _refuse_uneven(trials: Sequence[Trial]) -> None:
    counts = Counter(trial.method for trial in trials)
    if len(set(counts.values())) > 1:
        shares = ", ".join(f"{method} {count}" for method, count in counts.items())
        raise Misconfigured(
            f"methods would not get the same number of trials ({shares}), so comparing their best would not be fair. "
            f"Give every method as many values, or add --uneven."
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
