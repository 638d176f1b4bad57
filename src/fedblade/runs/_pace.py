"""How fast a run goes, as its listeners show it."""

import time

from fedblade.core.listener import RoundRecord


def round_facts(record: RoundRecord) -> str:
    """The accuracy after a round, if it was measured, and the seconds of the whole round, evaluation included."""
    seconds = f"{record.get('wall_seconds', record['seconds']):.2f} s/round"
    accuracy = record.get("test_accuracy")
    return seconds if accuracy is None else f"{accuracy:.2f} %  {seconds}"


class Pace:
    """The time that is left, from the mean time of the rounds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._done = 0

    def start(self) -> None:
        """The first round starts now."""
        self._started, self._done = time.monotonic(), 0

    def left(self, round_: int, rounds: int) -> float:
        """One more round is done, number `round_` of `rounds`: the seconds that are left."""
        self._done += 1
        return (time.monotonic() - self._started) / self._done * (rounds - round_)
