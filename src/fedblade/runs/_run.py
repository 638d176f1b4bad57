"""A run from Python: with names and objects (`run`) or with a checked configuration (`execute`)."""

import warnings
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.listener import RunListener
from fedblade.data import Dataset
from fedblade.runs._given_objects import take_objects
from fedblade.runs._job import RunJob
from fedblade.runs._progress import NoteLogger
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
    profile: bool = False,
    **overrides: Any,
) -> Result:
    """Train once. Keys are those of the configuration: `run("quickstart", method="fedblade", **{"local.epochs": 1})`.

    `dataset` may also be a `fedblade.data.Dataset`, four arrays (x, y, x_test, y_test) or two torch datasets. In arrays
    and torch datasets, bytes of shape [n, height, width] or [n, channels, height, width] are pixels and are divided by
    255. Labels other than 0, 1, 2, … are numbered in ascending order. Torch datasets with random transforms are read
    again in every epoch. `Result.model.predict` takes inputs in the form of the training data (docs/own-data.md).

    `model` may also be a torch module; the run copies it. If the module ends in a linear layer with one output per
    class, the layer is cut off and the head starts from its weights if the head has that form. Otherwise the output of
    the module is taken as features. `model.output="features"` or `"logits"` decides it instead. Layers with
    `requires_grad=False` stay as they are. Every seed starts from the given weights, unless `model.init="seed"` draws
    new ones. The rules are in `fedblade.models.as_backbone`, examples in docs/own-models.md.

    The `listener` gets notes on all assumptions; without one, the logger `fedblade` warns. `trackers=["tensorboard"]`
    lets trackers follow the run (`fedblade.trackers`), and `profile=True` writes where the time goes. In a script that
    torchrun starts, all processes share the run and get the same result. Without `out` nothing is written.
    `resume=True` goes on with the run in `out`. If no preset or file is given, the keys change its configuration as far
    as it may change (docs/run-folder.md). With `from_round=N` the run goes on from an earlier round, in a new folder
    beside `out`. `restart=True` moves what is in `out` aside and starts again.
    """
    listener = _former_listener(overrides) if "watcher" in overrides else listener
    given = take_objects(overrides)
    ranks = join_ranks()
    asked = RunRequest(config, overrides, (), out, resume, restart, from_round)
    checked = agreed_config(ranks, asked)
    dataset = given.dataset(checked)
    folder = None if out is None else agreed_folder(ranks, asked, checked)
    job = RunJob(checked, folder, resume, restart, listener or NoteLogger(), profile, dataset, given.model, ranks)
    return job.execute()


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
    return watcher  # type: ignore[no-any-return]


def execute(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    listener: RunListener | None = None,
    profile: bool = False,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
) -> Result:
    """Train a checked configuration in this process; see `run`."""
    folder, listener = None if out is None else Path(out), listener or RunListener()
    return RunJob(config, folder, resume, listener=listener, profile=profile, dataset=dataset, model=model).execute()
