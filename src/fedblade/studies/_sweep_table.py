"""The trials of a sweep as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedblade.config.settings import show
from fedblade.results import Table, short_names
from fedblade.studies._sweep import Trial


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
    return replace(Table.of_texts(["method", *numeric], rows, numeric), notes=(note,))


def value_text(trial: Trial, key: str) -> str:
    """The value of a key in a trial, empty if the trial does not have the key."""
    return show(trial.values[key]) if key in trial.values else ""
