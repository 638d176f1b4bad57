"""Comparisons: every method with every seed, planned for the command, or carried out from Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.config.overrides import name_keys
from fedblade.core.errors import Misconfigured
from fedblade.core.listener import RunListener
from fedblade.core.method import Method
from fedblade.core.words import listing, plural
from fedblade.presets.catalogue import refuse_grid
from fedblade.results import Table, comparison_table, group_runs, suggest_threshold
from fedblade.results import compare as compare_groups
from fedblade.runs import Callback, Progress, check_folder, folder_name, load_config, take_objects
from fedblade.studies._planned_run import PlannedRun
from fedblade.studies._study import NumJobs, Study, Trainer, records_of, seed_list, study_folder


def plan_comparison(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    methods: Sequence[Any],
    seeds: Sequence[int] | None,
    out: Path,
) -> list[PlannedRun]:
    """The runs of a comparison; all configurations and folders are checked before the first run starts.

    `methods` are names, or functions that were registered. Without `seeds`, that of the overrides counts, and otherwise
    those of the preset.
    """
    refuse_grid(
        source,
        "A comparison needs one setting. Use `fedblade reproduce {} --where method=A --where method=B`, which compares "
        "the methods of the grid.",
    )
    given = next((key for key in name_keys("method") if key in overrides), None)
    if given is not None:
        raise Misconfigured(
            f"{given} = {overrides[given]!r} has no effect, because a comparison has its own list of methods. Add the "
            f"method to it, or leave {given} out."
        )
    chosen = seeds or ([overrides["seed"]] if "seed" in overrides else None)
    runs: list[PlannedRun] = []
    for method in methods:
        first, suggested = load_config(source, {**overrides, "method": method})
        name = first.method.name
        for seed in chosen or suggested:
            config, _ = load_config(source, {**overrides, "method": method, "seed": seed})
            config.build_method()
            run = PlannedRun(f"{name} seed {seed}", out / f"{folder_name(name)}-seed{seed}", config)
            check_folder(run.directory, config, resume=True)
            runs.append(run)
    return runs


@dataclass(frozen=True, repr=False)
class Comparison(Study):
    """Methods compared over seeds. A notebook shows it as a table with means ± the deviation over seeds, and curves."""

    def _title(self) -> str:
        methods = list(dict.fromkeys(group.method for group in group_runs(self.runs)))
        data = list(dict.fromkeys(run.part("dataset") for run in self.runs))
        seeds = {run.seed for run in self.runs}
        return f"Comparison of {listing(methods)} on {listing(data)}, {plural(len(seeds), 'seed')}"

    def _numbers(self) -> list[Table]:
        groups = group_runs(self.runs)
        return [comparison_table(compare_groups(groups, suggest_threshold(groups)), "terminal")]


def compare(
    config: str | Path | None = None,
    *,
    methods: Sequence[str | Callable[..., Method]],
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    jobs: NumJobs = 1,
    listener: RunListener | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = "auto",
    **overrides: Any,
) -> Comparison:
    """Train every method with every seed: `compare(methods=["fedavg", "fedblade"], seeds=[1, 2, 3], rounds=30)`.

    A method of your own is a function that you have registered (`fedblade.api.register_method`). All other arguments
    are those of `fedblade.run`, `dataset` and `model` as objects included. Without `seeds`, those of the preset are
    used. With `out` every run has a folder there: finished runs are skipped, and runs that were cut short go on, so the
    same call can be repeated. Without `out` nothing stays on disk.

    `jobs` is the number of runs that are trained at a time, each in a process of its own; "auto" takes as many as the
    cores allow. These processes do not have objects of this one, nor parts that this one has registered. A run that
    fails does not stop the others; if all fail, this is an error.
    """
    if isinstance(methods, str) or not methods:
        raise Misconfigured(f"methods = {methods!r}; expected a list of names, such as methods=['fedavg', 'fedblade'].")
    trainer = Trainer(take_objects(overrides), listener, jobs, progress, callbacks)
    with study_folder(out) as folder:
        runs = plan_comparison(config, overrides, methods, seed_list(seeds), folder)
        failed = trainer.train(runs)
        records = records_of(runs, failed)
        results = [result for run in runs for result in trainer.results(run, kept=out is not None)]
    return Comparison(tuple(results), failed, None if out is None else Path(out), records)
