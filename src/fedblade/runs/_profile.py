"""What `--profile` writes: the time of every stage and round, and a trace that browsers show."""

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
"""The operators of one round are recorded, and no longer than until the first stage that ends after so long."""
MOST_OPERATORS = 50_000
"""Operators that a trace holds, the first ones of the recording."""
_MOST_BYTES = 2**28
"""A recording that is larger is not read back: it would need many times its size in memory."""
_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "6"


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went: seconds by stage, over all and over the `rounds` done now, and the files.

    The trace holds the operators of `operators_round`; what recording them took is not part of the stages.
    """

    seconds: Mapping[str, float]
    round_seconds: Mapping[str, float]
    rounds: int
    operators_round: int | None
    path: Path
    trace: Path

    def table(self) -> str:
        """A line for each stage: seconds, share of the whole, mean seconds per round."""
        whole = sum(self.seconds.values())
        lines = [f"{'stage':<10}{'seconds':>10}{'share':>10}{'per round':>12}"]
        for name, taken in (*self.seconds.items(), ("all", whole)):
            inside = sum(self.round_seconds.values()) if name == "all" else self.round_seconds.get(name, 0.0)
            mean = f"{inside / self.rounds:>12.4f}" if self.rounds and inside else ""
            lines.append(f"{name:<10}{taken:>10.3f}{100 * taken / max(whole, 1e-9):>8.1f} %{mean}")
        return "\n".join(lines)


class Recorder(Timeline):
    """Takes the time of stages, and records the operators of the second round it sees, or of the only one."""

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
        """Start to record operators if this is the round for it."""
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
        """Stop recording operators once there are enough."""
        if self._operators is not None and time.perf_counter() > self._until:
            self._stop()

    def end_round(self) -> None:
        """Stop recording operators, if that has not been done."""
        self._stop()

    def write(self, directory: RunDirectory) -> None:
        """Write the timing and the trace beside those of earlier sittings of the run."""
        self._stop()
        suffix = next(mark for mark in _marks() if not (directory.path / f"profile{mark}.json").exists())
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
        total = {name: taken for name, taken in self.seconds().items() if name != RECORDING}
        inside = {name: sum(self.seconds(number).get(name, 0.0) for number in self.rounds) for name in total}
        files = directory.path / timing, directory.path / trace
        self.profile = Profile(total, inside, len(rounds), self.operators_round, *files)

    def _stop(self) -> None:
        running, self._operators = self._operators, None
        if running is None:
            return
        with self.timed(RECORDING):
            running.stop()
            # Stages tick in a clock without a date, operators come dated: this moment, in both, joins them.
            began_ns = time.time_ns() - (time.perf_counter_ns() - self._began_ns)
            self._events = _operator_events(running, began_ns)

    def _stage_events(self) -> Iterator[dict[str, Any]]:
        """The stages as complete events of a thread of their own, above the operators."""
        process, thread = os.getpid(), 0
        place = {"pid": process, "tid": thread}
        yield {"ph": "M", "name": "process_name", **place, "args": {"name": "fedblade"}}
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": "stages"}}
        yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": -1}}
        for span in self.spans:
            name = f"round {span.round}" if span.name == "round" else span.name
            ts, dur = (span.start_ns - self._began_ns) / 1e3, span.duration_ns / 1e3
            facts = {"ts": ts, "dur": dur, "args": {"round": span.round}}
            yield {"ph": "X", "cat": "stage", "name": name, **place, **facts}


@contextmanager
def profiled(directory: RunDirectory, rounds: int, *, asked: bool) -> Iterator[Recorder | None]:
    """Take the time of a run over so many rounds if `asked`, and write it down whichever way the run ends."""
    if not asked:
        yield None
        return
    recorder = Recorder(rounds)
    try:
        with recorder.listen():
            yield recorder
    except BaseException:
        # Before the first round the folder may belong to another process; a full disk must not hide the first error.
        if recorder.rounds:
            with suppress(RunFailed):
                recorder.write(directory)
        raise
    recorder.write(directory)


def _marks() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def _fields(seconds: Mapping[str, float]) -> dict[str, float]:
    """Fields of a row: the whole, and each stage."""
    each = {f"{name}_seconds": seconds.get(name, 0.0) for name in (*STAGES, OTHER)}
    return {"seconds": sum(seconds.values()), **each}


def _operator_events(recorded: torch.profiler.profile, origin_ns: int) -> list[dict[str, Any]]:
    """Operators and kernels in the order they began, in microseconds from a date on; none if there are far too many."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operators.json"
        recorded.export_chrome_trace(str(path))
        if path.stat().st_size > _MOST_BYTES:
            return []
        raw = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    # Whole numbers are subtracted first: a date in microseconds leaves a float no digits for parts of them.
    shift = (raw.get("baseTimeNanoseconds", 0) - origin_ns) / 1e3
    named = [event for event in raw["traceEvents"] if event.get("ph") == "M"]
    timed = sorted((event for event in raw["traceEvents"] if event.get("ph") == "X"), key=lambda event: event["ts"])
    return named + [event | {"ts": event["ts"] + shift} for event in timed[:MOST_OPERATORS]]
