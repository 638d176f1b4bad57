"""Where the time of a run goes: named stages, which cost next to nothing unless a `Timeline` listens.

Code marks a stage with `with timed("train"):`. A `Timeline` that listens measures the time of every stage without the
stages inside it, so that the stages add up to the whole run. Each thread has a timeline of its own, or none.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

import torch

RECORDING = "recording"
"""The time that a profile itself takes."""
STAGES = ("prepare", "plan", "load", "train", "sums", "server", "evaluate", "save", RECORDING)
"""The stages of a run. `load` receives the model and the client's state, `sums` makes what a client sends and keeps."""
OTHER = "other"
"""The time of a run outside of all stages."""
MOST_SPANS = 50_000
"""Spans that are stored one by one; totals count all spans."""

_NOBODY: AbstractContextManager[None] = nullcontext()
_listening: ContextVar["Timeline | None"] = ContextVar("timeline", default=None)


def timed(name: str, round_: int | None = None) -> AbstractContextManager[None]:
    """Count the time inside for the stage `name`, and for round `round_` (from 1) if a round begins here."""
    timeline = _listening.get()
    return _NOBODY if timeline is None else timeline.timed(name, round_)


def wait_for(device: torch.device) -> None:
    """From here on a stage ends only when the work on `device` is done, if a timeline listens."""
    timeline = _listening.get()
    if timeline is not None:
        timeline.device = device


@dataclass(frozen=True)
class Span:
    """A span of time in nanoseconds of `time.perf_counter_ns`, and its round."""

    name: str
    start_ns: int
    duration_ns: int
    round: int | None


class Timeline:
    """Measures stages while it listens; waits for `device` at the start and end of a stage, so that its work counts."""

    def __init__(self) -> None:
        self.device: torch.device | None = None
        self.spans: list[Span] = []
        self.dropped_spans = 0
        self._totals_ns: dict[int | None, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._inside_ns: list[int] = []
        self._round: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Measure every stage until the end; time outside of all stages is `other`."""
        token = _listening.set(self)
        try:
            with self.timed("run"):
                yield
        finally:
            _listening.reset(token)

    @contextmanager
    def timed(self, name: str, round_: int | None = None) -> Iterator[None]:
        """Measure one stage."""
        outer = self._round
        if round_ is not None:
            self.begin_round(round_)
            self._round = round_
        began = self._now()
        self._inside_ns.append(0)
        try:
            yield
        finally:
            duration = self._now() - began
            self._record(Span(name, began, duration, self._round), duration - self._inside_ns.pop())
            if self._inside_ns:
                self._inside_ns[-1] += duration
            self.end_stage()
            self._round = outer
            if round_ is not None:
                self.end_round()

    @property
    def rounds(self) -> list[int]:
        """The rounds that were seen, in order."""
        return sorted(number for number in self._totals_ns if number is not None)

    def seconds(self, round_: int | None = None) -> dict[str, float]:
        """Seconds of each stage that took time, in one round or (None) in the whole run."""
        chosen = [self._totals_ns[round_]] if round_ is not None else list(self._totals_ns.values())
        named = {name: sum(totals.get(name, 0) for totals in chosen) for name in (*STAGES, OTHER)}
        return {name: nanoseconds / 1e9 for name, nanoseconds in named.items() if nanoseconds}

    def begin_round(self, round_: int) -> None:
        """Called before a round begins; subclasses may do more than measure time."""

    def end_stage(self) -> None:
        """Called after a stage has ended."""

    def end_round(self) -> None:
        """Called after a round has ended."""

    def _now(self) -> int:
        if self.device is not None and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter_ns()

    def _record(self, span: Span, own_ns: int) -> None:
        self._totals_ns[span.round][span.name if span.name in STAGES else OTHER] += own_ns
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        else:
            self.dropped_spans += 1
