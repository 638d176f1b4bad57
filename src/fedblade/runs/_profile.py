"""The profile of a run (`--profile`): the time of every stage and round, and a trace that browsers show."""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from fedblade.core.errors import RunFailed
from fedblade.core.timeline import OTHER, RECORDING, STAGES, Timeline
from fedblade.results import RunDirectory

OPERATOR_SECONDS = 2.0
"""The operators of one round are recorded, until the first stage that ends after so many seconds."""
MAX_OPERATORS = 50_000
"""A trace holds so many operators, the first ones of the recording."""
_MAX_BYTES = 2**28
"""A larger recording is not read: reading needs many times its size in memory."""
_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "6"


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went: seconds by stage, of the whole run and of its `rounds`, and the files.

    The trace holds the operators of the round `operators_round`. The time of recording them is in no stage.
    """

    seconds: Mapping[str, float]
    round_seconds: Mapping[str, float]
    rounds: int
    operators_round: int | None
    path: Path
    trace: Path

    def table(self) -> str:
        """One line per stage: seconds, share of the total, mean seconds per round."""
        total = sum(self.seconds.values())
        lines = [f"{'stage':<10}{'seconds':>10}{'share':>10}{'per round':>12}"]
        for name, seconds in (*self.seconds.items(), ("all", total)):
            in_rounds = sum(self.round_seconds.values()) if name == "all" else self.round_seconds.get(name, 0.0)
            mean = f"{in_rounds / self.rounds:>12.4f}" if self.rounds and in_rounds else ""
            lines.append(f"{name:<10}{seconds:>10.3f}{100 * seconds / max(total, 1e-9):>8.1f} %{mean}")
        return "\n".join(lines)

    def report(self) -> str:
        """The table, the files, and how to open the trace."""
        limits = f"the first {MAX_OPERATORS:,}, of some {OPERATOR_SECONDS:.0f} s"
        round_ = self.operators_round
        operators = "" if round_ is None else f", and operators of round {round_} ({limits})"
        return (
            f"{self.table()}\n"
            f"profile: {self.path}\n"
            f"trace: {self.trace}\n"
            f"The trace opens in chrome://tracing or https://ui.perfetto.dev; it holds all\n"
            f"stages{operators}."
        )


class Recorder(Timeline):
    """Measures the time of stages, and records the operators of the second round, or of the only one."""

    def __init__(self, last_round: int) -> None:
        super().__init__()
        self._last_round = last_round
        self._operators: torch.profiler.profile | None = None
        self._until = 0.0
        self._events: list[dict[str, Any]] = []
        self.operators_round: int | None = None
        self.profile: Profile | None = None
        self._began_ns = time.perf_counter_ns()

    def begin_round(self, round_: int) -> None:
        """Start recording operators if this is the round to record."""
        second = len(self.rounds) == 1
        if self.operators_round is not None or not (second or round_ == self._last_round):
            return
        self.operators_round = round_
        os.environ.setdefault(_LEVEL, _SILENT)
        with self.timed(RECORDING):
            kinds = [ProfilerActivity.CPU]
            if self.device is not None and self.device.type == "cuda":
                kinds.append(ProfilerActivity.CUDA)
            operators = torch.profiler.profile(activities=kinds)
            operators.start()
        self._operators, self._until = operators, time.perf_counter() + OPERATOR_SECONDS

    def end_stage(self) -> None:
        """Stop recording operators after `OPERATOR_SECONDS`."""
        if self._operators is not None and time.perf_counter() > self._until:
            self._stop()

    def end_round(self) -> None:
        """Stop recording operators."""
        self._stop()

    def write(self, directory: RunDirectory) -> None:
        """Write the times and the trace. Files of earlier sessions of the run stay."""
        self._stop()
        suffix = next(suffix for suffix in _suffixes() if not (directory.path / f"profile{suffix}.json").exists())
        timing, trace = f"profile{suffix}.json", f"trace{suffix}.json"
        rounds = [{"round": number, **_fields(self.seconds(number))} for number in self.rounds]
        directory.write_json(
            timing,
            {
                "operators_round": self.operators_round,
                "dropped_spans": self.dropped_spans,
                "total": _fields(self.seconds()),
                "rounds": rounds,
            },
        )
        directory.write(trace, json.dumps({"traceEvents": [*self._stage_events(), *self._events]}))
        total = {name: seconds for name, seconds in self.seconds().items() if name != RECORDING}
        in_rounds = {name: sum(self.seconds(number).get(name, 0.0) for number in self.rounds) for name in total}
        files = directory.path / timing, directory.path / trace
        self.profile = Profile(total, in_rounds, len(rounds), self.operators_round, *files)

    def _stop(self) -> None:
        running, self._operators = self._operators, None
        if running is None:
            return
        with self.timed(RECORDING):
            running.stop()
            # Stages use a clock without a date, operators one with a date: this moment is read from both clocks.
            began_ns = time.time_ns() - (time.perf_counter_ns() - self._began_ns)
            self._events = _operator_events(running, began_ns)

    def _stage_events(self) -> Iterator[dict[str, Any]]:
        """The stages as events of a separate thread, which is shown above the operators."""
        thread = {"pid": os.getpid(), "tid": 0}
        yield {"ph": "M", "name": "process_name", **thread, "args": {"name": "fedblade"}}
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": "stages"}}
        yield {"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": -1}}
        for span in self.spans:
            name = f"round {span.round}" if span.name == "round" else span.name
            ts, dur = (span.start_ns - self._began_ns) / 1e3, span.duration_ns / 1e3
            facts = {"ts": ts, "dur": dur, "args": {"round": span.round}}
            yield {"ph": "X", "cat": "stage", "name": name, **thread, **facts}


@contextmanager
def profiled(directory: RunDirectory, rounds: int, *, asked: bool) -> Iterator[Recorder | None]:
    """If `asked`, measure the time of a run with so many rounds, and write it however the run ends."""
    if not asked:
        yield None
        return
    recorder = Recorder(rounds)
    try:
        with recorder.listen():
            yield recorder
    except BaseException:
        # Before the first round the folder may belong to another process. A full disk must not hide the first error.
        if recorder.rounds:
            with suppress(RunFailed):
                recorder.write(directory)
        raise
    recorder.write(directory)


def _suffixes() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def _fields(seconds: Mapping[str, float]) -> dict[str, float]:
    """The total, and the seconds of every stage."""
    stages = {f"{name}_seconds": seconds.get(name, 0.0) for name in (*STAGES, OTHER)}
    return {"seconds": sum(seconds.values()), **stages}


def _operator_events(recorded: torch.profiler.profile, origin_ns: int) -> list[dict[str, Any]]:
    """Operators and kernels in order, in microseconds since `origin_ns`; none if the recording is too large."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operators.json"
        recorded.export_chrome_trace(str(path))
        if path.stat().st_size > _MAX_BYTES:
            return []
        raw = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    # Subtract whole numbers first: as a float, a date in microseconds has no digits left for fractions.
    shift = (raw.get("baseTimeNanoseconds", 0) - origin_ns) / 1e3
    named = [event for event in raw["traceEvents"] if event.get("ph") == "M"]
    timed = sorted((event for event in raw["traceEvents"] if event.get("ph") == "X"), key=lambda event: event["ts"])
    return named + [event | {"ts": event["ts"] + shift} for event in timed[:MAX_OPERATORS]]
