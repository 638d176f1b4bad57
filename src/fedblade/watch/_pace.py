"""How fast rounds come, how long the other rounds will take, and whether a run is silent."""

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from fedblade.results import RunRecord

_ROUNDS = 10
"""Estimates are made from this many rounds, which usually include rounds with and without evaluation."""
_PATIENCE = 5
"""A run is silent when no new round comes in the time of this many rounds."""
_LEAST_SILENCE = 10.0
"""No run is silent before this many seconds: a checkpoint or a busy machine may delay very short rounds."""


def recent_mean(seconds: Sequence[float]) -> float:
    """The mean seconds of the last few rounds."""
    return fmean(seconds[-_ROUNDS:])


class Pace:
    """The seconds per round, evaluation included, from the times at which rounds were written.

    Until two rounds were seen, the `seconds` in the history are used, which do not include evaluation.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def see(self, round_: int, at: float) -> None:
        """Note that the newest round is `round_`, and that it was written at the time `at`.

        A resumed run rewrites its history; the pace is then measured from the start.
        """
        if self._seen and (round_, at) == self._seen[-1]:
            return
        if self._seen and round_ <= self._seen[-1][0]:
            self._seen.clear()
        self._seen.append((round_, at))
        while len(self._seen) > 2 and self._seen[1][0] <= round_ - _ROUNDS:
            self._seen.popleft()

    @property
    def by_clock(self) -> bool:
        """Whether rounds were seen to arrive, so that estimates include evaluation."""
        return len(self._seen) > 1

    def per_round(self, run: RunRecord) -> float | None:
        """The seconds that a round takes lately, None before the first round."""
        if self.by_clock:
            (first, began), (last, ended) = self._seen[0], self._seen[-1]
            return max(ended - began, 0.0) / (last - first)
        trained = [round_.seconds for round_ in run.history if round_.seconds is not None]
        return recent_mean(trained) if trained else None

    def left(self, run: RunRecord, age: float) -> float | None:
        """The seconds until the last round ends, if the newest round is `age` seconds old; None if nobody can know."""
        per_round, planned = self.per_round(run), run.rounds_planned
        if per_round is None or planned is None:
            return None
        remaining = max(planned - run.rounds_done, 0)
        return per_round * remaining - min(age, per_round) if remaining else 0.0

    def silent(self, run: RunRecord, age: float) -> bool:
        """Whether the newest round is so old, `age` seconds, that another one should have come long ago."""
        per_round = self.per_round(run)
        return per_round is not None and age > max(_PATIENCE * per_round, _LEAST_SILENCE)
