"""How sure an accuracy is: its spread over seeds, where there are runs of other seeds, and over clients."""

from statistics import fmean, pstdev, stdev

from fedblade.core.words import plural
from fedblade.results import RunRecord, finite_number, group_runs, percent, read_runs, run_folders

_OF_CLIENT = {
    "global_accuracy": "on the client's own test samples",
    "expected_accuracy": "expected of the client's mix of labels, from the accuracies by class",
}
_SEED = "-seed"
_WORST = 10


def spread_over_seeds(run: RunRecord) -> str | None:
    """Mean and standard deviation over the runs of a comparison that differ from this one in the seed alone."""
    runs = [other for other in _runs_of_all_seeds(run) if other.finished and other.final_accuracy is not None]
    if len(runs) < 2:
        return None
    finals = [other.final_accuracy for other in runs if other.final_accuracy is not None]
    last = [other.last10_accuracy for other in runs if other.last10_accuracy is not None]
    text = f"{fmean(finals):.2f} ± {stdev(finals):.2f} % after the last round"
    if len(last) > 1:
        text += f", {fmean(last):.2f} ± {stdev(last):.2f} % over the last rounds"
    seeds = ", ".join(str(other.seed) for other in runs)
    return f"{text} (mean and standard deviation, n−1, over {plural(len(runs), 'seed')}: {seeds})"


def _runs_of_all_seeds(run: RunRecord) -> tuple[RunRecord, ...]:
    """This run and, in the folder of a comparison, those of other seeds."""
    here = run.path.resolve()
    name, separator, _ = here.name.rpartition(_SEED)
    if not separator or not here.is_dir():
        return ()
    beside = [folder for folder in run_folders(here.parent) if folder.name.startswith(f"{name}{_SEED}")]
    groups = group_runs(read_runs(beside))
    return next((group.runs for group in groups if any(other.path == here for other in group.runs)), ())


def spread_over_clients(run: RunRecord) -> str | None:
    """Mean, standard deviation and worst tenth over the clients of `clients.jsonl`, for the global model."""
    for key, meaning in _OF_CLIENT.items():
        found = (finite_number(client.get(key)) for client in run.clients)
        values = sorted(value for value in found if value is not None)
        if len(values) > 1:
            worst = fmean(values[: max(1, len(values) // _WORST)])
            return (
                f"mean {fmean(values):.2f} %, standard deviation {pstdev(values):.2f}, worst tenth {percent(worst)} "
                f"({plural(len(values), 'client')}; {meaning})"
            )
    return None
