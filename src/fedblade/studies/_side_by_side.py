"""Trains the runs of a study: one after another in this process, or side by side.

Side by side, workers take the runs in order, and one process shows what all of them do.
"""

import math
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import RunFailed
from fedblade.core.listener import RunListener
from fedblade.core.words import plural
from fedblade.engines.ranks import raise_described_error
from fedblade.runs import GivenObjects, UniqueNotes
from fedblade.studies._jobs import Jobs, jobs_in_memory, worker_environment
from fedblade.studies._planned_run import NOTHING_GIVEN, PlannedRun, run_planned, unfinished_runs
from fedblade.studies._worker import Message, relay_message
from fedblade.studies._worker_process import Inbox, Worker

Listen = Callable[[str], AbstractContextManager[RunListener]]
"""Makes the listener of a run from the run's label."""
Display = Callable[[int], AbstractContextManager[Listen]]
"""Makes the listeners of so many runs side by side."""


def run_side_by_side(unfinished: Sequence[PlannedRun], jobs: Jobs, listen: Listen) -> dict[Path, str]:
    """Do runs that `unfinished_runs` gave; returns by folder why a run failed. A failed run does not stop the others.

    If this process is stopped or killed, all workers end, and every run can go on.
    """
    with _Team(unfinished, jobs, listen).working() as team:
        while team.busy:
            team.handle_message()
        return team.failed


@dataclass(frozen=True)
class _Training:
    """A run in training."""

    run: PlannedRun
    listener: RunListener
    end_listening: ExitStack
    began: float


class _Team:
    """The workers, the runs that wait for them, and the runs in training."""

    def __init__(self, runs: Sequence[PlannedRun], jobs: Jobs, listen: Listen) -> None:
        self.failed: dict[Path, str] = {}
        self._jobs = jobs
        self._listen = listen
        self._waiting = list(runs)
        self._num_runs, self._num_started = len(runs), 0
        self._seconds: dict[str, float] = {}
        self._count = min(jobs.count, len(runs))
        self._inbox: Inbox = queue.Queue()
        self._devices: dict[Worker, str | None] = {}
        self._starting: set[Worker] = set()
        self._idle: set[Worker] = set()
        self._training: dict[Worker, _Training] = {}
        self._ending: set[Worker] = set()
        self._shown: set[str] = set()
        self._memory_known = not jobs.chosen or self._count == 1

    @property
    def busy(self) -> bool:
        """Whether a worker is left."""
        return bool(self._devices)

    @property
    def _num_workers(self) -> int:
        """Workers without those that were told to end."""
        return len(self._devices) - len(self._ending)

    @contextmanager
    def working(self) -> Iterator["_Team"]:
        """Start the workers, and end all of them at the end of the block, however it ends."""
        try:
            for number in range(self._count):
                self._start_worker(self._jobs.devices[number] if self._jobs.devices else None)
            yield self
        finally:
            for worker in self._devices:
                worker.end(at_once=worker in self._starting)
            while self._devices:
                worker, message = self._inbox.get()
                if message["kind"] == "gone":
                    del self._devices[worker]
            for training in self._training.values():
                training.end_listening.close()

    def handle_message(self) -> None:
        """Wait for the next message of a worker and act on it."""
        worker, message = self._inbox.get()
        match message["kind"]:
            case "ready":
                self._starting.discard(worker)
                self._idle.add(worker)
            case "done" | "failed":
                self._end_run(worker, message.get("text"))
                self._idle.add(worker)
            case "error":
                raise_described_error(None, message["error"])
            case "text":
                self._show(message["text"])
            case "warning":
                if message["text"] not in self._shown:
                    self._shown.add(message["text"])
                    self._show(message["text"])
            case "gone":
                self._lose(worker, message["reason"])
            case _:
                self._relay(worker, message)
        self._hand_out_runs()

    def _start_worker(self, device: str | None) -> None:
        worker = Worker(worker_environment(self._jobs, device), self._jobs.threads, self._inbox)
        self._devices[worker] = device
        self._starting.add(worker)

    def _hand_out_runs(self) -> None:
        """Give runs to idle workers, and end the workers that get none.

        Until it is known how much memory a run takes, only one run is in training.
        """
        for worker in list(self._idle):
            if not self._waiting or self._num_workers > self._count:
                self._idle.discard(worker)
                self._ending.add(worker)
                worker.end()
            elif self._memory_known or not self._training:
                self._idle.discard(worker)
                self._start_run(worker)

    def _start_run(self, worker: Worker) -> None:
        # Longest first, so that the last runs end together. Nothing is known of a run before another seed has ended.
        run = max(self._waiting, key=lambda run: self._seconds.get(_without_seed(run), math.inf))
        self._waiting.remove(run)
        self._num_started += 1
        end_listening = ExitStack()
        listener = end_listening.enter_context(self._listen(f"{run.label} ({self._num_started}/{self._num_runs})"))
        began = time.monotonic()
        self._training[worker] = _Training(run, UniqueNotes(listener, self._shown), end_listening, began)
        worker.train(run)

    def _end_run(self, worker: Worker, failure: str | None) -> None:
        training = self._training.pop(worker)
        if failure is None:
            self._memory_known = True
            self._seconds[_without_seed(training.run)] = time.monotonic() - training.began
        else:
            self.failed[training.run.folder] = failure
            training.listener.on_note(f"{training.run.label} failed: {failure}")
        training.end_listening.close()

    def _relay(self, worker: Worker, message: Message) -> None:
        listener = self._training[worker].listener
        relay_message(message, listener)
        if message["kind"] == "round" and not self._memory_known:
            self._memory_known = True
            self._limit_memory(message["peak"], listener)

    def _limit_memory(self, peak: int | None, listener: RunListener) -> None:
        """Train fewer runs at a time if the memory is too small for all of them."""
        fitting = self._count if peak is None else min(self._count, jobs_in_memory(self._jobs, peak))
        if fitting < self._count and peak is not None:
            listener.on_note(
                f"{plural(fitting, 'run')} at a time instead of {self._count}: a run takes up to "
                f"{peak / 2**30:.1f} GiB of memory. --jobs N sets another number."
            )
        self._count = fitting

    def _lose(self, worker: Worker, reason: str) -> None:
        """A worker has ended: the run that it trained has failed, and another worker takes its place if need be."""
        device = self._devices.pop(worker)
        for group in (self._idle, self._ending):
            group.discard(worker)
        if worker in self._starting:
            raise RunFailed(
                f"a process for a run could not be started: {reason}. Use --jobs 1 to train all runs in one process."
            )
        if worker in self._training:
            advice = "Repeat the command to go on with the run; fewer --jobs need less memory"
            self._end_run(worker, f"{reason}. {advice}")
        if self._waiting and self._num_workers < self._count:
            self._start_worker(device)

    def _show(self, text: str) -> None:
        """Show what a worker printed; a display that is on the terminal puts it above its bars."""
        print(text, file=sys.stderr, flush=True)


def train_runs(
    runs: Sequence[PlannedRun], jobs: Jobs, listen: Listen, display: Display, given: GivenObjects = NOTHING_GIVEN
) -> dict[Path, str]:
    """Do the runs that are not finished; returns by folder why a run failed. A failed run does not stop the others.

    `listen` makes the listener of a run in this process, and `display` those of runs side by side.
    """
    if jobs.in_this_process:
        return run_planned(runs, listen, given)
    unfinished = unfinished_runs(runs)
    with display(len(unfinished)) as shared:
        return run_side_by_side(unfinished, jobs, shared)


def _without_seed(run: PlannedRun) -> str:
    """A key that runs have in common if they differ only in the seed."""
    return repr({**run.config.table(), "seed": 0})
