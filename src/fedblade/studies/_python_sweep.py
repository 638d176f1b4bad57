"""A sweep from Python: the same trials, folders and tables as those of the command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.listener import RunListener
from fedblade.core.words import listing, plural
from fedblade.display import data_frame, summary_row
from fedblade.results import Table
from fedblade.runs import Callback, Progress, Result, take_objects
from fedblade.studies._measures import Measurement
from fedblade.studies._study import NumJobs, Study, Trainer, records_of, seed_list, study_folder
from fedblade.studies._sweep import Axis, Trial, plan_sweep, select_best, sweep_table, tuning_axes

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class SweepTrial:
    """One combination of values for one method.

    `accuracy` has the `mean` and the `std` over seeds in percent, on the validation samples of a sweep with
    `validation`; it is None if no run has finished. `results` has a result for each seed. `tested` has the results on
    the test set, for the best trial of a method in a sweep with `validation`.
    """

    method: str
    values: Mapping[str, Any]
    accuracy: Measurement | None
    results: tuple[Result, ...]
    tested: tuple[Result, ...] = ()

    def __repr__(self) -> str:
        accuracy = "none" if self.accuracy is None else self.accuracy.text()
        return f"SweepTrial(method={self.method!r}, values={dict(self.values)!r}, accuracy={accuracy})"


@dataclass(frozen=True, repr=False)
class Sweep(Study):
    """The trials of a grid. A notebook shows it as a table with means ± the deviation over seeds, and curves.

    `trials` has all combinations, and `chosen` the best one of each method.
    """

    trials: tuple[SweepTrial, ...] = ()
    chosen: Mapping[str, SweepTrial] = field(default_factory=dict)
    tables: tuple[Table, ...] = field(default=(), repr=False, compare=False)

    @property
    def best(self) -> SweepTrial:
        """The trial with the highest mean accuracy; of equal trials the earlier one."""
        return max(self.chosen.values(), key=lambda trial: 0.0 if trial.accuracy is None else trial.accuracy.mean)

    def to_pandas(self) -> "DataFrame":
        """The numbers of the summaries as a frame of pandas with a row for each run of each trial."""
        return data_frame(
            [
                {"method": trial.method, **trial.values} | summary_row(result.summary)
                for trial in self.trials
                for result in (*trial.results, *trial.tested)
            ]
        )

    def _title(self) -> str:
        methods = list(dict.fromkeys(trial.method for trial in self.trials))
        return f"Sweep of {plural(len(self.trials), 'trial')} for {listing(methods)}"

    def _numbers(self) -> Sequence[Table]:
        return self.tables


def sweep(
    config: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] | None = None,
    validation: bool = False,
    tune: bool = False,
    uneven: bool = False,
    out: str | Path | None = None,
    jobs: NumJobs = 1,
    listener: RunListener | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = "auto",
    **overrides: Any,
) -> Sweep:
    """Train every combination of values: `sweep(grid={"lr": [0.01, 0.1], "method": ["fedavg", "fedprox"]})`.

    The key `"fedprox:mu"` is for one method alone. Every method must get the same number of trials, unless `uneven`.
    With `validation` trials are compared on samples held out of the clients' training data, and the best trial of every
    method is trained again on all of them and tested; without it the test set chooses, which is optimistic. With `tune`
    the search space of every method is added to the grid, and `validation` is on. All other arguments are those of
    `fedblade.compare`.
    """
    validation = validation or tune
    changes = overrides | ({"evaluation.on": "validation"} if validation else {})
    axes = _axes(grid or {})
    axes = tuning_axes(config, (), changes, axes) if tune else axes
    trainer = Trainer(take_objects(changes), listener, jobs, progress, callbacks)
    with study_folder(out) as folder:
        trials = plan_sweep(config, axes, folder, overrides=changes, seeds=seed_list(seeds), uneven=uneven)
        return _trained(trainer, trials, None if out is None else Path(out), validation=validation)


def _trained(trainer: Trainer, trials: Sequence[Trial], path: Path | None, *, validation: bool) -> Sweep:
    """Train the trials, and with `validation` the best of every method again on the test set."""
    runs = [run for trial in trials for run in trial.runs]
    failed = trainer.train(runs)
    best = select_best(trials)
    tables = [sweep_table(trials, best, "validation" if validation else "test")]
    again = {id(trial): trial.on_test_set() for trial in best.values()} if validation else {}
    if again:
        test_runs = [run for trial in again.values() for run in trial.runs]
        failed, runs = failed | trainer.train(test_runs), runs + test_runs
        tables.append(sweep_table(list(again.values()), {}, "test"))

    def results_of(trial: Trial | None) -> tuple[Result, ...]:
        planned = () if trial is None else trial.runs
        return tuple(result for run in planned for result in trainer.results(run, kept=path is not None))

    ended = {
        id(trial): SweepTrial(
            trial.method, trial.values, trial.accuracy(), results_of(trial), results_of(again.get(id(trial)))
        )
        for trial in trials
    }
    return Sweep(
        results=tuple(result for trial in ended.values() for result in (*trial.results, *trial.tested)),
        failed=failed,
        path=path,
        runs=records_of(runs, failed),
        trials=tuple(ended.values()),
        chosen={method: ended[id(trial)] for method, trial in best.items()},
        tables=tuple(tables),
    )


def _axes(grid: Mapping[str, Sequence[Any]]) -> list[Axis]:
    """The axes of a grid: `{"lr": [0.01, 0.1]}`, or `{"fedprox:mu": [0.1, 1]}` for one method."""
    axes = []
    for key, given in grid.items():
        values = given.tolist() if isinstance(given, np.ndarray) else given
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise Misconfigured(f"grid = {{'{key}': {values!r}}}; expected a list of values, such as {{'lr': [0.1]}}.")
        method, _, name = key.rpartition(":")
        axes.append(Axis(name, tuple(values), method or None))
    return axes
