"""A run that is carried out: checked against its folder, set up, trained, and recorded however it ends."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.listener import RunListener
from fedblade.core.nested import dotted
from fedblade.core.state import ClientStore
from fedblade.core.timeline import timed
from fedblade.data import Dataset
from fedblade.engines.ranks import Ranks
from fedblade.results import SUMMARY, RunDirectory
from fedblade.runs._driver import Driver
from fedblade.runs._given_module import check_module
from fedblade.runs._memory import explained_out_of_memory
from fedblade.runs._model_inputs import model_facts
from fedblade.runs._profile import profiled
from fedblade.runs._request import check_folder
from fedblade.runs._rescue import lost_folder, rescue
from fedblade.runs._result import Result, driver_result, finished_notes, received_result, result_message, stored_result
from fedblade.runs._reuse import ReuseCheck
from fedblade.runs._settle import put_right, settle, write_descriptions
from fedblade.runs._setup import Setup, prepare
from fedblade.runs._summary import origin_notes, past_on_record, summarise
from fedblade.runs._trained_model import save_model
from fedblade.runs.distributed._process import announce_end, ending_together, signals_delayed, threads_for
from fedblade.runs.distributed._shared_run import lead_setup, lead_store, refuse_ranks, serve_rank_0
from fedblade.trackers import attached_trackers, check_installed


@dataclass(frozen=True)
class RunJob:
    """A run that is to be carried out; see `fedblade.run` for the options.

    Without a `folder` nothing is written. With `restart`, what the folder holds is moved aside first. `ranks` are the
    processes that share the run, None if there is only this one. `make_setup` builds the run if a configuration is not
    enough for that, such as if nodes hold the data; it is called while this process holds the folder.
    With `keeps_partial`, Ctrl-C ends a run without a folder with the result of its complete rounds.
    """

    config: RunConfig
    folder: Path | None = None
    resume: bool = False
    restart: bool = False
    listener: RunListener = field(default_factory=RunListener)
    profile: bool = False
    dataset: Dataset | None = None
    model: nn.Module | None = None
    ranks: Ranks | None = None
    make_setup: Callable[[], Setup] | None = None
    keeps_partial: bool = False

    def execute(self) -> Result:
        """Carry the run out: in this process alone, as rank 0, or as a rank that serves rank 0."""
        if self.ranks is None:
            refuse_ranks()
            return self._lead()
        with threads_for(self.ranks):
            if not self.ranks.is_rank_0:
                served = serve_rank_0(self.ranks, self.config, self.folder, self.dataset, self.model)
                return received_result(self.folder, *served)
            with ending_together(self.ranks):
                result = self._lead()
                self.ranks.broadcast(*result_message(result))
            return result

    def _lead(self) -> Result:
        return self._in_memory() if self.folder is None else self._in_folder(RunDirectory(self.folder))

    def _in_memory(self) -> Result:
        """Run without a folder."""
        if self.profile:
            raise Misconfigured("profile=True writes into the folder of the run, and there is none. Give out=DIR.")
        if self.config.general.trackers:
            raise Misconfigured("trackers write into the folder of the run, and there is none. Give out=DIR.")
        setup, store = self._with_ranks(self._build(), None)
        driver = Driver(setup, None, self.listener, store)
        try:
            driver.run()
        except KeyboardInterrupt:
            # Other ranks would wait, and without a complete round there is nothing to keep.
            if not self.keeps_partial or self.ranks is not None or not driver.history:
                raise
            return driver_result(setup, driver, None, "interrupted")
        return driver_result(setup, driver, None)

    def _in_folder(self, directory: RunDirectory) -> Result:
        """Start the run in its folder, go on with it, or read its result if it has finished."""
        config = self.config
        finished = self._former_result(directory)
        if finished is not None:
            return finished
        check_installed(config.general.trackers)
        try:
            with profiled(directory, config.federation.rounds, asked=self.profile) as recorder:
                with timed("prepare"):
                    setup = self._build_and_open(directory)
                    # Before this process had the folder, another one may have gone on with the run.
                    changes = check_folder(directory, config, resume=True)
                    for note in settle(directory, setup, self.model, changes):
                        self.listener.on_note(note)
                    write_descriptions(directory, setup)
                    setup, store = self._with_ranks(setup, directory)
                settings = dotted(config.table())
                with attached_trackers(config.general.trackers, directory.path, settings, self.listener) as listener:
                    result = self._drive(Driver(setup, directory, listener, store), setup, directory)
            return result if recorder is None else replace(result, profile=recorder.profile)
        finally:
            directory.close()

    def _former_result(self, directory: RunDirectory) -> Result | None:
        """The result of a run that has finished in the folder; a folder in which this run may not go on is refused."""
        if self.restart:
            directory.check(resume=True)
            return None
        changes = check_folder(directory, self.config, resume=self.resume)
        for note in (*origin_notes(directory), *check_module(directory, self.config, self.model)):
            self.listener.on_note(note)
        finished = stored_result(directory, self.config, self.model)
        if finished is not None:
            self._check_data(directory)
            for note in finished_notes(directory, changes):
                self.listener.on_note(note)
        return finished

    def _build_and_open(self, directory: RunDirectory) -> Setup:
        """Build the run and open its folder.

        A configuration that cannot be built leaves no folder, and leaves a former run where it is. What `make_setup`
        builds may wait for nodes for long, so it holds the folder from the beginning, and may write to it.
        """
        if self.make_setup is not None:
            self._open(directory)
            return self._build()
        setup = self._build()
        self._open(directory)
        return setup

    def _open(self, directory: RunDirectory) -> None:
        if self.restart and directory.path.is_dir():
            self._put_former_run_aside(directory)
        directory.open(resume=self.resume and not self.restart)

    def _put_former_run_aside(self, directory: RunDirectory) -> None:
        """Move what the folder holds into a folder of its own, so that the run starts again from round 0."""
        directory.open(resume=True)
        try:
            former = directory.set_aside()
        finally:
            directory.close()
        if former is not None:
            self.listener.on_note(f"what was in '{directory.path}' is kept in '{former}'.")

    def _check_data(self, directory: RunDirectory) -> None:
        """Refuse a finished run that used other data than there are now. Data on nodes cannot be compared here."""
        if self.make_setup is None:
            ReuseCheck(self.dataset).check(directory, self.config)

    @explained_out_of_memory()
    def _build(self) -> Setup:
        if self.ranks is not None:
            return lead_setup(self.ranks, self.config, self.dataset, self.model)
        return prepare(self.config, self.dataset, self.model) if self.make_setup is None else self.make_setup()

    def _with_ranks(self, setup: Setup, directory: RunDirectory | None) -> tuple[Setup, ClientStore | None]:
        """If there are ranks: the run with all ranks as its engine, and the store of the clients' states."""
        return (setup, None) if self.ranks is None else lead_store(self.ranks, self.config, setup, directory)

    def _drive(self, driver: Driver, setup: Setup, directory: RunDirectory) -> Result:
        """Run the rounds, and write the summary however they end."""
        try:
            driver.run()
            for note in put_right(directory, setup, driver, self.model):
                self.listener.on_note(note)
            save_model(directory, driver.evaluated_state, model_facts(setup.dataset))
            result = driver_result(setup, driver, directory)
            directory.write_json(SUMMARY, result.summary)
            directory.seal()
        except BaseException as error:
            announce_end(self.ranks)
            if not driver.has_started:
                raise
            # A failure, Ctrl-C, SIGTERM or a bug: complete rounds are kept. A full disk must not hide the first error.
            failed = isinstance(error, Exception)
            status = "failed" if failed else "interrupted"
            summary = summarise(setup, driver.history, status, driver.clients, past_on_record(directory))
            with signals_delayed(self.ranks):
                lost = lost_folder(directory)
                if lost is not None:
                    raise rescue(lost, directory, setup, driver, self.model, summary) from error
                with contextlib.suppress(RunFailed):
                    driver.save()
                with contextlib.suppress(RunFailed):
                    directory.write_json(SUMMARY, summary | ({"error": str(error)} if failed else {}))
            raise
        return result
