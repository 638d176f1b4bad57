"""How fast rounds come, how long the rest will take, and when a run has been silent for too long."""

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from fedblade.results import RunRecord

_ROUNDS = 10
"""Rounds the estimates look back on, which covers the usual rhythms of evaluation."""
_PATIENCE = 5
"""A run is silent when this many usual rounds pass without a new one."""
_LEAST_SILENCE = 10.0
"""Seconds below which silence means nothing: rounds of milliseconds pause for checkpoints and busy machines."""


def recent_mean(seconds: Sequence[float]) -> float:
    """The mean of the last few rounds."""
    return fmean(seconds[-_ROUNDS:])


class Pace:
    """Seconds per round by the clock, evaluation included, once two rounds were seen to arrive.

    Until then the rounds' own `seconds` count, which leave evaluation out.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def see(self, round_: int, at: float) -> None:
        """Note that the newest round on record is `round_`, written at the time `at`.

        A history that was rewritten, as a resumed run does, starts the count anew.
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
        """Whether rounds were seen to arrive, so that estimates cover all that a round takes."""
        return len(self._seen) > 1

    def per_round(self, run: RunRecord) -> float | None:
        """Seconds a round takes lately, or None before the first."""
        if self.by_clock:
            (first, began), (last, ended) = self._seen[0], self._seen[-1]
            return max(ended - began, 0.0) / (last - first)
        stated = [round_.seconds for round_ in run.history if round_.seconds is not None]
        return recent_mean(stated) if stated else None

    def left(self, run: RunRecord, age: float) -> float | None:
        """Seconds until the last round ends, `age` seconds after the newest one; None while nothing can be said."""
        per_round, planned = self.per_round(run), run.rounds_planned
        if per_round is None or planned is None:
            return None
        remaining = max(planned - run.rounds_done, 0)
        return per_round * remaining - min(age, per_round) if remaining else 0.0

    def silent(self, run: RunRecord, age: float) -> bool:
        """Whether the newest round, `age` seconds old, should have been followed by another long ago."""
        per_round = self.per_round(run)
        return per_round is not None and age > max(_PATIENCE * per_round, _LEAST_SILENCE)
