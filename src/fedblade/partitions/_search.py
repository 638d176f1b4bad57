"""Tables of Dirichlet shares, drawn until one leaves enough samples to every client."""

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
_FIRST_LOOK = 1024
# A search is given up where all draws to come together succeed with less than this chance.
_HOPELESS = 1e-3
# A search that has come nowhere near its minimum by this many draws is given up at a chance per draw below _RARE.
_PATIENCE = 2**16
_RARE = 1e-6
# How many draws it takes to believe in their share.
_SEEN = 30


class Draw(NamedTuple):
    """A drawn table: `shares` [C, K], its smallest client, how many draws were made up to this one.

    `given_up` says that the search ended before its limit.
    """

    shares: Floats
    smallest: int
    draws: int
    given_up: bool = False


@dataclass(frozen=True, eq=False)
class Search:
    """Draws of tables that hand out `class_sizes` [C] to `num_clients` by Dir(alpha), the cap on or off.

    `generator` gives the random numbers of batch 0, 1, …
    """

    class_sizes: Ints
    num_clients: int
    alpha: float
    cap: bool
    generator: Callable[[int], np.random.Generator]

    def first(self, min_size: int, limit: int) -> Draw:
        """The first of `limit` draws that gives every client `min_size` samples, else the best of those made.

        The search gives up before `limit` where `log_odds` says that the draws to come hold a success with a chance
        below 1 in 1000. From 65,536 draws on it also gives up where the best draw left half of `min_size` or less to
        the smallest client, and `log_odds` says that a draw succeeds less than once in a million. With few clients the
        first rule alone would not end such a search, which can take minutes and fails most of the time. The second
        rule leaves alone a search that succeeds once in 100,000 draws. The search looks at the odds after 1024 draws
        and whenever the number of draws has doubled.
        """
        watch = _Watch(min_size, limit, np.zeros(self.num_clients + 1, dtype=np.int64))
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
            if watch.is_hopeless(done, best, sizes):
                return Draw(shares[0], best, done, given_up=True)
            watch.tell(done, best)
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
class _Watch:
    """Looks after a search that goes on: gives it up in time, and tells the user that it goes on.

    `short[x]` counts the draws so far that left x clients below the minimum.
    """

    min_size: int
    limit: int
    short: Ints
    look: int = _FIRST_LOOK
    started: float = field(default_factory=time.monotonic)
    silent: float = _SILENT_SECONDS

    def is_hopeless(self, done: int, best: int, sizes: Ints) -> bool:
        """Note the `sizes` [draws, K] of failed draws; whether the draws from `done` on are not worth their time.

        `best` is the smallest client of the best draw so far.
        """
        self.short += np.bincount((sizes < self.min_size).sum(axis=1), minlength=len(self.short))
        if done < self.look:
            return False
        self.look *= 2
        odds = log_odds(self.short)
        far = done >= _PATIENCE and 2 * best <= self.min_size
        return odds + math.log(self.limit - done) < math.log(_HOPELESS) or (far and odds < math.log(_RARE))

    def tell(self, done: int, best: int) -> None:
        """A line after three seconds, and whenever the time has doubled since the last one."""
        if time.monotonic() - self.started < self.silent:
            return
        self.silent *= 2
        _log.warning(
            "still drawing a Dirichlet split: none of %d draws gave every client %d samples, the best left %d to the "
            "smallest client; at most %d draws are made",
            *(done, self.min_size, best, self.limit),
        )


def log_odds(short: Ints) -> float:
    """The logarithm of the chance that a draw leaves no client short, extrapolated so that it is rather too high.

    `short[x]` counts the draws so far with x clients below the minimum; P(x) is the share of draws with at most x. If
    clients were short independently of each other, each step down from x = a to 0 would multiply P by at most ρ·x/a,
    where ρ = P(a - 1)/P(a) is measured: P(0) ≤ P(a)·ρ^a·a!/a^a. In truth samples that one client lacks lie with
    another, which makes few short clients rarer still. ρ is taken from the shares at two values of x that were seen
    often enough, or from the largest share below them that would not have been seen more often than it was.
    """
    seen = np.cumsum(short)
    draws = seen[-1]
    low = int(np.argmax(seen >= _SEEN))
    if low == 0:
        return 0.0
    high = min(max(low + 1, int(np.argmax(seen >= min(4 * _SEEN, draws)))), len(seen) - 1)
    slope = math.log(seen[high] / seen[low]) / max(high - low, 1)
    between = math.log(seen[low] / draws) - low * slope
    below = math.log(_SEEN / draws) - (low - 1) * math.log(seen[low] / _SEEN)
    return min(between, below, 0.0) + math.lgamma(low + 1) - low * math.log(low)


def capped_shares(log_weights: Floats, class_sizes: Ints, cap: bool) -> tuple[Floats, Ints]:
    """Shares [draws, C, K] from log weights of that shape (overwritten), and the client sizes [draws, K] they give.

    Under the cap a client that holds n/K samples is shut out of the remaining classes. Somebody always stays open
    while samples are left, and its weight is scaled before it leaves the logarithm: the shares never become 0/0.
    """
    draws, _, num_clients = log_weights.shape
    num_samples = class_sizes.sum()
    held = np.zeros((draws, num_clients), dtype=np.int64)
    for label, amount in enumerate(class_sizes.tolist()):
        weights = log_weights[:, label]
        if cap and amount > 0:
            weights[held * num_clients >= num_samples] = -np.inf
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        cut = cuts(weights, amount)
        held += cut
        held[:, 1:] -= cut[:, :-1]
    return log_weights, held
