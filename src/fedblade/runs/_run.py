"""A run from Python: with names and objects (`run`) or with a checked configuration (`execute`)."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RunListener
from fedblade.data import Dataset
from fedblade.runs._callbacks import Callback
from fedblade.runs._given_objects import take_objects
from fedblade.runs._job import RunJob
from fedblade.runs._notes import end_notes
from fedblade.runs._progress import Progress, run_listener
from fedblade.runs._request import RunRequest
from fedblade.runs._result import Result
from fedblade.runs.distributed._agreement import agreed_config, agreed_folder
from fedblade.runs.distributed._shared_run import join_ranks


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    restart: bool = False,
    from_round: int | None = None,
    listener: RunListener | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = "auto",
    profile: bool = False,
    **overrides: Any,
) -> Result:
    """Train once. Keys are those of the configuration: `run("quickstart", method="fedblade", **{"local.epochs": 1})`.

    `dataset` may also be arrays or data frames (x, y) or (x, y, x_test, y_test), torch datasets, a Hugging Face data
    set or a `fedblade.data.Dataset` (docs/how-to-own-data.md says how they are read), and `model` a torch module, which
    the run copies: a last linear layer with one output per class becomes the head (docs/how-to-own-models.md).
    `Result.model.predict` takes inputs in the form of the training data and gives labels of the training data.
    Data that are divided already are `clients={"north": (x, y), "south": (x, y, x_test, y_test)}` instead of `dataset`.
    The `listener` is told of every step and gets notes on all assumptions; `callbacks` are further listeners, or
    functions of the round record that may end the run; with `progress="auto"` a terminal or a notebook shows the rounds
    (docs/explain-life-of-a-run.md). `trackers=["tensorboard"]` lets trackers follow the run; `profile=True` says where
    the time goes. In a script that torchrun starts, all processes share the run and get the same result.

    Without `out` nothing is written, and Ctrl-C ends the run with the result of the rounds so far. `resume=True` goes
    on with the run in `out`. If no preset or file is given, the keys change its configuration as far as it may change
    (docs/reference-run-folder.md). With `from_round=N` the run goes on from an earlier round, in a new folder beside
    `out`. `restart=True` moves what is in `out` aside and starts again.
    """
    listener = _former_listener(overrides) if "watcher" in overrides else listener
    given = take_objects(overrides)
    ranks = join_ranks()
    asked = RunRequest(config, overrides, (), out, resume, restart, from_round)
    checked = agreed_config(ranks, asked)
    dataset = given.dataset(checked)
    folder = None if out is None else agreed_folder(ranks, asked, checked)
    with run_listener(progress, listener, callbacks, speaks=ranks is None or ranks.is_rank_0) as told:
        job = RunJob(checked, folder, resume, restart, told, profile, dataset, given.model, ranks, keeps_partial=True)
        return _with_end_note(job.execute(), told)


def _with_end_note(result: Result, listener: RunListener) -> Result:
    """The result, after the listener was told why the run has ended before its last round, if it has."""
    for note in end_notes(result.summary):
        listener.on_note(note)
    return result


def _former_listener(overrides: dict[str, Any]) -> RunListener:
    """The listener that was passed by its former name, `watcher`."""
    warnings.warn(
        "fedblade.run(watcher=…) is deprecated: pass listener=…, a fedblade.api.RunListener. Its on_start gets a "
        "RunOverview, and on_own_model is called on_personal_model.",
        DeprecationWarning,
        stacklevel=3,
    )
    watcher = overrides.pop("watcher")
    if not hasattr(watcher, "on_personal_model"):
        watcher.on_personal_model = watcher.on_own_model
    if not hasattr(watcher, "stops"):
        watcher.stops = RunListener().stops
    return watcher  # type: ignore[no-any-return]


def execute(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    listener: RunListener | None = None,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
) -> Result:
    """Train a checked configuration in this process; see `run`."""
    folder, listener = None if out is None else Path(out), listener or RunListener()
    return RunJob(config, folder, resume, listener=listener, dataset=dataset, model=model).execute()
