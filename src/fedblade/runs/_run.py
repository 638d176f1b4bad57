"""One run, from Python or from the command line."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.config.run_config import OBJECT, RunConfig
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.nested import dotted
from fedblade.core.state import ClientStore
from fedblade.core.timeline import timed
from fedblade.data import Dataset, as_dataset
from fedblade.engines.ranks import Ranks
from fedblade.models import own_module
from fedblade.results import MODEL, SUMMARY, RunDirectory
from fedblade.runs._driver import Driver, RunListener
from fedblade.runs._given_module import check_module
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import profiled
from fedblade.runs._progress import Quiet, Silent
from fedblade.runs._request import check_folder, comparable, requested_config
from fedblade.runs._result import Result, finished_result, received_result, result_of, sent_result
from fedblade.runs._reuse import Today
from fedblade.runs._setup import Setup, prepare
from fedblade.runs._summary import record_partition, summarise
from fedblade.runs._trained_model import save_model
from fedblade.runs.distributed._agreement import agreed_config, followed_config, followed_folder
from fedblade.runs.distributed._process import ending_together, threads_for, undisturbed
from fedblade.runs.distributed._shared_run import follow, joined, lead_setup, lead_store, refuse_ranks
from fedblade.trackers import check_installed, tracked


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    listener: RunListener | None = None,
    profile: bool = False,
    **overrides: Any,
) -> Result:
    """Train once. Keys are those of the configuration: `run("quickstart", method="fedblade", rounds=30, seed=1)`.

    A dotted key is passed as `**{"local.epochs": 1}`. `dataset` may also be a `fedblade.data.Dataset`, four arrays
    (x, y, x_test, y_test) or two torch datasets. Of arrays and torch datasets, bytes of shape
    [n, height, width] or [n, channels, height, width] are pixels and divided by 255, tables are used as they are,
    pictures may have their channels last, labels that are not 0, 1, 2, … are numbered in ascending order, and torch
    datasets whose transforms draw random numbers are read anew in every epoch. `Result.model.predict` takes inputs as
    training took them and gives the labels of the training data (docs/own-data.md).

    `model` may also be a torch module, which is copied. A module that ends in a linear layer with an output for each
    class is taken for a classifier: the layer is cut off, and the head starts from its weights where it has that form.
    Any other output is taken for features; `model.output="features"` or `"logits"` says it instead. Layers with
    `requires_grad=False` stay as they are. All seeds start from the given weights; `model.init="seed"` draws them anew.
    `fedblade.models.as_backbone` has the rules, docs/own-models.md examples.

    What was found and assumed is told to the `listener` before the first round; without one it is logged, as a warning
    of the logger `fedblade`.

    Nothing is written without `out`; with it, `resume=True` goes on with a run that was cut short, with the run's own
    configuration if none is given, `trackers=["tensorboard"]` lets trackers follow it (`fedblade.trackers`), and
    `profile=True` writes where the time goes (`Result.profile`). In a script that torchrun starts, all processes share
    the run and get the same result.
    """
    dataset = _passed(overrides, "dataset", as_dataset)
    model = _passed(overrides, "model", own_module)
    ranks = joined()
    checked = agreed_config(ranks, lambda: requested_config(config, overrides, out=out, resume=resume))
    told = Quiet() if listener is None else listener
    return execute(
        checked, out=out, resume=resume, listener=told, profile=profile, dataset=dataset, model=model, ranks=ranks
    )


def execute(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    listener: RunListener | None = None,
    profile: bool = False,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    ranks: Ranks | None = None,
    make: Callable[[], Setup] | None = None,
) -> Result:
    """Train a checked configuration, together with `ranks` if there are any; see `run`.

    `make` builds the run where that is not done from the configuration alone.
    """
    folder = None if out is None else Path(out)

    def build() -> Setup:
        if ranks is not None:
            return lead_setup(ranks, config, dataset, model)
        return prepare(config, dataset, model) if make is None else make()

    # Data that nodes hold are not here to be compared.
    today = Today(dataset) if make is None else None
    if ranks is None:
        refuse_ranks()
    with threads_for(ranks):
        if ranks is not None and not ranks.leads:
            return received_result(folder, *follow(ranks, config, folder, dataset, model))
        with ending_together(ranks):
            result = _carried_out(config, folder, resume, listener or Silent(), profile, build, today, model, ranks)
            if ranks is not None:
                ranks.tell(*sent_result(result))
        return result


def followed(ranks: Ranks, out: Path | None) -> Result:
    """A run as a rank that serves it takes part: rank 0 reads the configuration, and chooses the folder if need be."""
    config = followed_config(ranks)
    return execute(config, out=out or followed_folder(ranks), ranks=ranks)


def _carried_out(
    config: RunConfig,
    out: Path | None,
    resume: bool,
    listener: RunListener,
    profile: bool,
    build: Callable[[], Setup],
    today: Today | None,
    model: nn.Module | None,
    ranks: Ranks | None,
) -> Result:
    """The run as one process sees it, which may be rank 0 of several; `today` compares the data of a finished run."""
    if out is None:
        if profile:
            raise Misconfigured("profile=True writes into the folder of the run, and there is none. Give out=DIR.")
        if config.general.trackers:
            raise Misconfigured("trackers write into the folder of the run, and there is none. Give out=DIR.")
        setup, store = _with_ranks(ranks, config, build(), None)
        driver = Driver(setup, None, listener, store)
        driver.run()
        return result_of(setup, driver, None)
    directory = RunDirectory(out)
    check_folder(directory, config, resume=resume)
    for note in check_module(directory, config, model):
        listener.on_note(note)
    finished = finished_result(directory, model)
    if finished is not None:
        if today is not None:
            today.check(directory, config)
        listener.on_note(f"'{directory.path}' is already finished.")
        return finished
    check_installed(config.general.trackers)
    try:
        with profiled(directory, config.federation.rounds, asked=profile) as recorder:
            with timed("prepare"):
                setup = build()
                directory.open(comparable(directory, config), resume=resume)
                record_partition(directory, setup, model)
                directory.write_fields(field for metric in setup.metrics for field in metric.fields)
                setup, store = _with_ranks(ranks, config, setup, directory)
            with tracked(config.general.trackers, directory.path, dotted(config.table()), listener) as everyone:
                result = _drive(setup, directory, everyone, store, ranks)
        return result if recorder is None else replace(result, profile=recorder.profile)
    finally:
        directory.close()


def _with_ranks(
    ranks: Ranks | None, config: RunConfig, setup: Setup, directory: RunDirectory | None
) -> tuple[Setup, ClientStore | None]:
    """The run with all ranks as its engine, and the store of its clients' states if it is not the usual one."""
    if ranks is None:
        return setup, None
    led = lead_store(ranks, config, setup, directory)
    return led.setup, led.store


def _drive(
    setup: Setup, directory: RunDirectory, listener: RunListener, store: ClientStore | None, ranks: Ranks | None
) -> Result:
    """Run the rounds and record how it ended, whichever way it ends."""
    driver = Driver(setup, directory, listener, store)
    try:
        driver.run()
        save_model(directory.path / MODEL, driver.measured_state, model_facts(setup.dataset))
        result = result_of(setup, driver, directory.path)
        directory.write_json(SUMMARY, result.summary)
    except BaseException as error:
        # A failure, Ctrl-C, SIGTERM or a bug: what was reached is kept. A full disk must not hide the first error.
        failed = isinstance(error, Exception)
        summary = summarise(setup, driver.history, "failed" if failed else "interrupted", driver.clients)
        with undisturbed(ranks):
            with contextlib.suppress(RunFailed):
                driver.save()
            with contextlib.suppress(RunFailed):
                directory.write_json(SUMMARY, summary | ({"error": str(error)} if failed else {}))
        raise
    return result


def _passed(overrides: dict[str, Any], key: str, convert: Callable[[Any], Any]) -> Any:
    """An object passed in place of a name, converted; the configuration then says that it came from Python."""
    value = overrides.get(key)
    if value is None or isinstance(value, str | Mapping):
        return None
    overrides[key] = OBJECT
    return convert(value)
