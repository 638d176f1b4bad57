"""How the runs of a study share a machine: how many at a time, with how many threads, on which devices."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.machine import cores, free_memory
from fedblade.runs import find_device, guess_work
from fedblade.studies._estimate import Estimate, time_in_words
from fedblade.studies._planned_run import PlannedRun

AUTO = "auto"
_SHORT_STUDY = 5000
"""With fewer local steps in all, the start of a second process takes longer than it saves."""
_SMALLEST_WORKER = 600 * 2**20
"""Bytes of a process that trains a tiny network."""


@dataclass(frozen=True)
class Jobs:
    """`count` runs are trained at a time, with at most `threads` CPU threads each.

    `devices` has the device of each of them; without devices, every run takes that of its configuration. If `chosen`,
    nobody asked for `count`, and it becomes smaller when the first run shows that memory is too small.
    """

    count: int
    threads: int
    devices: tuple[str, ...] = ()
    chosen: bool = False

    @property
    def in_this_process(self) -> bool:
        """Whether the runs are trained one after another in the process of the command."""
        return self.count == 1 and not self.devices

    def sentence(self, cost: Estimate) -> str:
        """The cost of runs in one line, and the time that it takes with so many runs at a time."""
        at_a_time = min(self.count, cost.runs)
        if cost.seconds is None or at_a_time < 2:
            return cost.sentence()
        # If the runs do not divide evenly, the last of them leave workers idle.
        seconds = cost.seconds / cost.runs * -(-cost.runs // at_a_time)
        return f"{cost.sentence()}; about {time_in_words(seconds)} with {at_a_time} runs at a time"


def plan_jobs(asked: str, devices: str, runs: Sequence[PlannedRun]) -> Jobs:
    """The jobs of a study from the texts of `--jobs` and `--devices`.

    The whole study counts, with its finished runs: when it goes on, the runs that are left get as many threads as the
    others had.
    """
    named = tuple(name.strip() for name in devices.split(",") if name.strip())
    _check_devices(named, runs)
    count = None if asked.strip() == AUTO else _read_count(asked)
    if count is not None and count < len(named):
        raise Misconfigured(
            f"--jobs {count} would leave devices of --devices {devices} idle. Name {count} of them, or leave --jobs "
            f"out."
        )
    num_runs = max(1, len({run.folder for run in runs}))
    chosen = _choose_count(named, runs) if count is None else count
    count_used = min(chosen, num_runs)
    cycled = tuple(named[number % len(named)] for number in range(count_used)) if named else ()
    threads = min(torch.get_num_threads(), max(1, cores() // count_used))
    return Jobs(count_used, threads, cycled, chosen=count is None)


def worker_environment(jobs: Jobs, device: str | None) -> dict[str, str]:
    """The environment of a process that trains runs on `device` with the threads of a job.

    The process sees no other device, so that the configuration of a run does not depend on where the run is trained.
    """
    environment = dict(os.environ) | {"OMP_NUM_THREADS": str(jobs.threads)}
    if device is not None:
        index = torch.device(device).index or 0
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        number = visible[index] if index < len(visible) else str(index)
        environment["CUDA_VISIBLE_DEVICES"] = number if torch.device(device).type == "cuda" else ""
    return environment


def jobs_in_memory(jobs: Jobs, peak: int) -> int:
    """How many runs fit at a time if one of them is in training and has taken `peak` bytes at most."""
    free = free_memory()
    return jobs.count if free is None else max(1, min(jobs.count, 1 + int(free / (1.2 * peak))))


def _read_count(text: str) -> int:
    if text.strip().isdecimal() and int(text) > 0:
        return int(text)
    raise Misconfigured(f"--jobs '{text}' is not a number of runs at a time; expected auto, or 1 or more.")


def _check_devices(names: Sequence[str], runs: Sequence[PlannedRun]) -> None:
    """Refuse devices that are not here, and configurations that ask for other devices."""
    for name in names:
        if name == AUTO:
            raise Misconfigured("--devices auto does not name devices; expected for example --devices cuda:0,cuda:1.")
        find_device(name)
    asked = {run.config.general.device for run in runs} - {AUTO} if names else set()
    for device in sorted(asked):
        if ":" in device or any(name.partition(":")[0] != device for name in names):
            raise Misconfigured(
                f"device = '{device}' is set, and --devices {','.join(names)} names other devices. Leave one of the "
                f"two out."
            )


def _choose_count(devices: Sequence[str], runs: Sequence[PlannedRun]) -> int:
    """One run per device; on a CPU, as many as cores and memory allow, if there is work enough."""
    if devices:
        return len(devices)
    if any(find_device(run.config.general.device).type != "cpu" for run in runs) or _is_short(runs):
        return 1
    free = free_memory()
    return cores() if free is None else min(cores(), max(1, free // _SMALLEST_WORKER))


def _is_short(runs: Sequence[PlannedRun]) -> bool:
    """Whether all runs together have few steps. Runs on data of unknown size count as long."""
    works = [guess_work(run.config) for run in {run.folder: run for run in runs}.values()]
    known = [work.client_steps for work in works if work is not None]
    return len(known) == len(works) and sum(known) < _SHORT_STUDY
