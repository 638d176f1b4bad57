"""Tables of Dirichlet shares, drawn until a table gives every client enough samples."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedblade.partitions._checks import Floats, Ints
from fedblade.partitions._split import cuts, log_gamma

DRAW_LIMIT = 1_000_000

_log = logging.getLogger("fedblade.partitions")
_BATCH_DRAWS = 256
_BATCH_CELLS = 2**18
_SILENT_SECONDS = 3.0
_FIRST_CHECK = 1024
# A search ends if the chance of a success in all remaining draws together is below this.
_HOPELESS = 1e-3
# After so many draws, a search that is far from its minimum ends if the chance of a success per draw is below _RARE.
_PATIENCE = 2**16
_RARE = 1e-6
# A share of draws is trusted if at least so many draws are behind it.
_SEEN = 30


class Draw(NamedTuple):
    """A drawn table: `shares` [C, K], the samples of its smallest client, and the number of draws so far.

    `given_up` says that the search ended before its limit.
    """

    shares: Floats
    smallest: int
    draws: int
    given_up: bool = False


@dataclass(frozen=True, eq=False)
class Search:
    """Draws of tables that divide `class_sizes` [C] among `num_clients` by Dir(alpha), with or without the cap.

    `generator` gives the random numbers of batch 0, 1, …
    """

    class_sizes: Ints
    num_clients: int
    alpha: float
    cap: bool
    generator: Callable[[int], np.random.Generator]

    def first(self, min_size: int, limit: int) -> Draw:
        """The first of `limit` draws that gives every client `min_size` samples; else a draw with the best size seen.

        The search ends before `limit` if the remaining draws hold a success with a chance below 1 in 1000, as
        estimated by `log_odds`. From 65,536 draws on it also ends if the best draw gave the smallest client half of
        `min_size` or less and a draw succeeds less than once in a million. With few clients the first rule alone
        would not end such a search, which can take minutes and fails most of the time. The second rule does not end a
        search that succeeds once in 100,000 draws. The odds are estimated after 1024 draws and whenever the number of
        draws has doubled.
        """
        progress = _Progress(min_size, limit, np.zeros(self.num_clients + 1, dtype=np.int64))
        done, best = 0, -1
        for weights in self.batches():
            shares, sizes = capped_shares(weights, self.class_sizes, self.cap)
            smallest = sizes.min(axis=1)[: limit - done]
            hits = np.flatnonzero(smallest >= min_size)
            if len(hits):
                return Draw(shares[hits[0]].copy(), int(smallest[hits[0]]), done + int(hits[0]) + 1)
            done, best = done + len(smallest), max(best, int(smallest.max()))
            if done >= limit:
                break
            if progress.is_hopeless(done, best, sizes):
                return Draw(shares[0], best, done, given_up=True)
            progress.report(done, best)
        return Draw(shares[0], best, done)

    def batches(self) -> Iterator[Floats]:
        """Endless batches of log Gamma(alpha) variables [draws, C, K]; normalised over K they are Dir(alpha)."""
        shape = (len(self.class_sizes), self.num_clients)
        most = max(1, min(_BATCH_DRAWS, _BATCH_CELLS // math.prod(shape)))
        size, batch = 1, 0
        while True:
            yield log_gamma(self.generator(batch), self.alpha, (size, *shape))
            size, batch = min(2 * size, most), batch + 1


@dataclass(eq=False)
class _Progress:
    """The progress of a search: whether to end it, and messages to the user while it goes on.

    `short[x]` counts the draws so far that left x clients below the minimum.
    """

    min_size: int
    limit: int
    short: Ints
    next_check: int = _FIRST_CHECK
    started: float = field(default_factory=time.monotonic)
    silent: float = _SILENT_SECONDS

    def is_hopeless(self, done: int, best: int, sizes: Ints) -> bool:
        """Count the `sizes` [draws, K] of failed draws; say whether the draws after `done` are not worth their time.

        `best` is the size of the smallest client in the best draw so far.
        """
        self.short += np.bincount((sizes < self.min_size).sum(axis=1), minlength=len(self.short))
        if done < self.next_check:
            return False
        self.next_check *= 2
        odds = log_odds(self.short)
        far = done >= _PATIENCE and 2 * best <= self.min_size
        return odds + math.log(self.limit - done) < math.log(_HOPELESS) or (far and odds < math.log(_RARE))

    def report(self, done: int, best: int) -> None:
        """Log a line after three seconds, and again whenever the time has doubled."""
        if time.monotonic() - self.started < self.silent:
            return
        self.silent *= 2
        _log.warning(
            "still drawing a Dirichlet split: none of %d draws gave every client %d samples, the best left %d to the "
            "smallest client; at most %d draws are made",
            *(done, self.min_size, best, self.limit),
        )


def log_odds(short: Ints) -> float:
    """The logarithm of the chance that a draw leaves no client short; the estimate is rather too high than too low.

    `short[x]` counts the draws so far with x clients below the minimum; P(x) is the share of draws with at most x. If
    clients were short independently of each other, each step down from x = a to 0 would multiply P by at most ρ·x/a,
    where ρ = P(a - 1)/P(a) is measured: P(0) ≤ P(a)·ρ^a·a!/a^a. In truth another client holds the samples that one
    client lacks, which makes few short clients rarer still. ρ comes from the shares at two values of x with enough
    draws behind them, or from the largest share below them that agrees with the few draws seen there.
    """
    seen = np.cumsum(short)
    draws = seen[-1]
    low = int(np.argmax(seen >= _SEEN))
    if low == 0:
        return 0.0
    high = min(max(low + 1, int(np.argmax(seen >= min(4 * _SEEN, draws)))), len(seen) - 1)
    log_ratio = math.log(seen[high] / seen[low]) / max(high - low, 1)
    between = math.log(seen[low] / draws) - low * log_ratio
    below = math.log(_SEEN / draws) - (low - 1) * math.log(seen[low] / _SEEN)
    return min(between, below, 0.0) + math.lgamma(low + 1) - low * math.log(low)


def capped_shares(log_weights: Floats, class_sizes: Ints, cap: bool) -> tuple[Floats, Ints]:
    """Shares [draws, C, K] from log weights of that shape (overwritten), and the client sizes [draws, K] they give.

    With the cap, a client that holds n/K samples gets none of the remaining classes. While samples are left, at least
    one client is below the cap, and the largest log weight is subtracted before `exp`: the shares never become 0/0.
    """
    draws, _, num_clients = log_weights.shape
    num_samples = class_sizes.sum()
    sizes = np.zeros((draws, num_clients), dtype=np.int64)
    for label, amount in enumerate(class_sizes.tolist()):
        weights = log_weights[:, label]
        if cap and amount > 0:
            weights[sizes * num_clients >= num_samples] = -np.inf
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        cut = cuts(weights, amount)
        sizes += cut
        sizes[:, 1:] -= cut[:, :-1]
    return log_weights, sizes
