"""One run, from Python or from the command line."""

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from torch import nn

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.state import ClientStore
from fedblade.core.timeline import stage
from fedblade.core.tree import Tree
from fedblade.data import Dataset, as_dataset
from fedblade.engines.ranks._ranks import Ranks
from fedblade.experiment._config import OBJECT, RunConfig, resolve
from fedblade.experiment._directory import CLIENTS, DIAGNOSTICS, MODEL, SUMMARY, RunDirectory, _leaves
from fedblade.experiment._distributed import (
    agreed_config,
    ending_together,
    follow,
    followed_config,
    followed_folder,
    joined,
    lead_setup,
    lead_store,
    refuse_ranks,
    threads_for,
    undisturbed,
)
from fedblade.experiment._driver import Driver, Row, Watcher
from fedblade.experiment._model import TrainedModel, load, model_facts, save_model
from fedblade.experiment._overrides import apply
from fedblade.experiment._presets import read_config
from fedblade.experiment._profile import Profile, profiled
from fedblade.experiment._progress import Silent
from fedblade.experiment._setup import Setup, prepare
from fedblade.experiment._summary import check_partition, check_sources, record_partition, summarise
from fedblade.methods import compose
from fedblade.models import as_backbone
from fedblade.trackers import check_installed, tracked

TRACKERS = "trackers"
"""A key of a configuration that is no part of what the run is."""
_DISTRIBUTED, _TIMEOUT = "distributed", "timeout_seconds"
DEPLOYMENT = "flower"
"""The table of an app's file that only a deployment reads."""


@dataclass(frozen=True)
class Result:
    """A finished run: one row per round, the summary, the trained network, the folder it was written to.

    `clients` has one row per client where the clients' own models were measured at the end, `profile` says where the
    time went if that was asked for and anything was left to do. `diagnostics` has one row for each round in which a
    metric found more than single numbers: spectra, matrices.
    """

    history: list[Row]
    summary: dict[str, Any]
    model: TrainedModel
    path: Path | None
    clients: list[Row] = field(default_factory=list)
    profile: Profile | None = None
    diagnostics: list[Row] = field(default_factory=list)


def load_config(
    source: str | Path | None, overrides: Mapping[str, Any], where: Sequence[str] = ()
) -> tuple[RunConfig, list[int]]:
    """A checked configuration, and the seeds its preset suggests for comparisons; `where` chooses a grid's cell."""
    given = read_config(source, where)
    if source is not None and Path(source).is_file():
        for method in given.get("methods", {}):
            compose(method)
    # The terms of a deployment mean nothing to a run on one machine, so an app's file is a run's file too.
    given.pop(DEPLOYMENT, None)
    raw = apply(given, overrides)
    seeds = raw.pop("seeds", None)
    config = resolve(raw)
    return config, [config.general.seed] if seeds is None else _check_seeds(seeds)


def requested_config(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    where: Sequence[str] = (),
    *,
    out: str | Path | None,
    resume: bool,
) -> RunConfig:
    """The configuration asked for; resuming without asking for any takes the one the folder was started with.

    Trackers are no part of what is compared: they may be asked for, or not any more, when a run goes on.
    """
    asked = [value for key, value in overrides.items() if value != OBJECT and key != TRACKERS]
    if resume and out is not None and source is None and not where and not asked:
        directory = RunDirectory(Path(out))
        if directory.exists:
            return resolve(apply(directory.stored_config(), overrides))
    return load_config(source, overrides, where)[0]


def _check_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return seeds
    raise Misconfigured(f"seeds = {seeds!r} is not allowed; expected a list of whole numbers, such as [1, 2, 3].")


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    profile: bool = False,
    **overrides: Any,
) -> Result:
    """Train once. Keys are those of the configuration: `run("quickstart", method="fedblade", rounds=30, seed=1)`.

    A dotted key is passed as `**{"local.epochs": 1}`. `dataset` may also be a `fedblade.data.Dataset`, four arrays
    (x, y, x_test, y_test) or two torch datasets, `model` a torch module. Nothing is written without `out`; with it,
    `resume=True` goes on with a run that was cut short, with the run's own configuration if none is given,
    `trackers=["tensorboard"]` lets trackers follow it (`fedblade.trackers`), and `profile=True` writes where the time
    goes (`Result.profile`). In a script that torchrun starts, all processes share the run and get the same result.
    """
    dataset = _passed(overrides, "dataset", as_dataset)
    model = _passed(overrides, "model", lambda given: copy.deepcopy(as_backbone(given)))
    ranks = joined()
    checked = agreed_config(ranks, lambda: requested_config(config, overrides, out=out, resume=resume))
    return execute(
        checked, out=out, resume=resume, watcher=watcher, profile=profile, dataset=dataset, model=model, ranks=ranks
    )


def execute(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
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

    if ranks is None:
        refuse_ranks()
    with threads_for(ranks):
        if ranks is not None and not ranks.leads:
            return _received(folder, *follow(ranks, config, folder, dataset, model))
        with ending_together(ranks):
            result = _carried_out(config, folder, resume, watcher or Silent(), profile, build, dataset, model, ranks)
            if ranks is not None:
                ranks.tell(*_sent(result))
        return result


def followed(ranks: Ranks, out: Path | None) -> Result:
    """A run as a rank that serves it takes part: rank 0 reads the configuration, and chooses the folder if need be."""
    config = followed_config(ranks)
    return execute(config, out=out or followed_folder(ranks), ranks=ranks)


def _carried_out(
    config: RunConfig,
    out: Path | None,
    resume: bool,
    watcher: Watcher,
    profile: bool,
    build: Callable[[], Setup],
    dataset: Dataset | None,
    model: nn.Module | None,
    ranks: Ranks | None,
) -> Result:
    """The run as one process sees it, which may be rank 0 of several."""
    if out is None:
        if profile:
            raise Misconfigured("profile=True writes into the folder of the run, and there is none. Give out=DIR.")
        if config.general.trackers:
            raise Misconfigured("trackers write into the folder of the run, and there is none. Give out=DIR.")
        setup, store = _with_ranks(ranks, config, build(), None)
        driver = Driver(setup, None, watcher, store)
        driver.run()
        return _result(setup, driver, None)
    directory = RunDirectory(out)
    check_folder(directory, config, resume=resume)
    finished = _finished(directory, model)
    if finished is not None:
        if dataset is not None:
            check_partition(directory, {"data": dataset.digest()})
        watcher.on_note(f"'{directory.path}' is already finished.")
        return finished
    check_installed(config.general.trackers)
    try:
        with profiled(directory, config.federation.rounds, asked=profile) as recorder:
            with stage("prepare"):
                setup = build()
                directory.open(_comparable(directory, config), resume=resume)
                record_partition(directory, setup)
                setup, store = _with_ranks(ranks, config, setup, directory)
            with tracked(config.general.trackers, directory.path, _leaves(config.table()), watcher) as everyone:
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


def _sent(result: Result) -> tuple[dict[str, Any], Tree]:
    """A result as rank 0 sends it to the others."""
    parts = {name: getattr(result, name) for name in ("history", "summary", "clients", "diagnostics")}
    return {"kind": "end", "result": parts}, dict(result.model.state_dict())


def _received(path: Path | None, setup: Setup, parts: Mapping[str, Any], tensors: Tree) -> Result:
    """The result that rank 0 sent."""
    model = TrainedModel(setup.problem.network, setup.start, model_facts(setup.dataset))
    model.load_state_dict(tensors)
    return Result(model=model, path=path, **parts)


def check_folder(directory: RunDirectory, config: RunConfig, *, resume: bool) -> None:
    """Refuse a folder that cannot take this run: another configuration, other contents, or a user's file edited."""
    directory.check(_comparable(directory, config), resume=resume)
    check_sources(directory, config)


def _comparable(directory: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """The configuration's table, with what a run in the folder was started with and may differ now.

    Those are the trackers and how long ranks wait; a run of before there were ranks has no table of them.
    """
    table = config.table()
    if directory.exists:
        stored = directory.stored_config()
        del table[TRACKERS]
        table |= {TRACKERS: stored[TRACKERS]} if TRACKERS in stored else {}
        if _DISTRIBUTED in stored:
            table[_DISTRIBUTED][_TIMEOUT] = stored[_DISTRIBUTED].get(_TIMEOUT)
        elif config.distributed == type(config.distributed)():
            del table[_DISTRIBUTED]
    return table


def folder_name(method: str) -> str:
    """A method's name as a folder name; a reference to a file keeps its last part."""
    return "".join(c if c.isalnum() or c in "+-_." else "-" for c in method.rpartition("/")[2])


def next_run_folder(method: str, base: Path = Path("runs")) -> Path:
    """`runs/<date>-<method>-<n>` with the first n that is free."""
    stem = f"{date.today().isoformat()}-{folder_name(method)}"
    number = 1
    while (base / f"{stem}-{number}").exists():
        number += 1
    return base / f"{stem}-{number}"


def _drive(
    setup: Setup, directory: RunDirectory, watcher: Watcher, store: ClientStore | None, ranks: Ranks | None
) -> Result:
    """Run the rounds and record how it ended, whichever way it ends."""
    driver = Driver(setup, directory, watcher, store)
    try:
        driver.run()
        save_model(directory.path / MODEL, driver.measured_state, model_facts(setup.dataset))
        result = _result(setup, driver, directory.path)
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


def _result(setup: Setup, driver: Driver, path: Path | None) -> Result:
    model = TrainedModel(setup.problem.network, driver.measured_state, model_facts(setup.dataset))
    summary = summarise(setup, driver.history, "finished", driver.clients)
    return Result(driver.history, summary, model, path, driver.clients, diagnostics=driver.diagnostics)


def _finished(directory: RunDirectory, model: nn.Module | None) -> Result | None:
    """The result of a run that had already ended, read back."""
    summary = directory.read_json(SUMMARY)
    if summary is None or summary.get("status") != "finished":
        return None
    own = directory.rows(CLIENTS)
    rows = directory.rows(DIAGNOSTICS)
    return Result(directory.history(), summary, load(directory.path, model), directory.path, own, diagnostics=rows)


def _passed(overrides: dict[str, Any], key: str, convert: Callable[[Any], Any]) -> Any:
    """An object passed in place of a name, converted; the configuration then says that it came from Python."""
    value = overrides.get(key)
    if value is None or isinstance(value, str | Mapping):
        return None
    overrides[key] = OBJECT
    return convert(value)
