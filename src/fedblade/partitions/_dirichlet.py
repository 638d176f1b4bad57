"""Dirichlet label skew, capped and redrawn on the table of shares before any sample is touched."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Floats, Ints, as_alpha, as_flag, as_whole
from fedblade.partitions._split import TABLE, Split, cuts, log_gamma

DRAW_LIMIT = 1_000_000
# With a fallback in reserve a level is given up sooner; a draw that succeeds once in 20,000 is still found.
FALLBACK_DRAW_LIMIT = 250_000
FALLBACK_SIZES = (10, 5, 2, 1)
_BATCH_DRAWS = 256
_BATCH_CELLS = 2**18


class Draw(NamedTuple):
    """A drawn table: `shares` [C, K], its smallest client, and how many draws were made up to this one."""

    shares: Floats
    smallest: int
    draws: int


@partitions.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Dirichlet label skew: each class is shared out by its own draw of Dir(alpha); smaller alpha, stronger skew.

    Class after class, q ~ Dir(alpha·1_K) says which share of the class each client is dealt. With `cap` a client that
    already holds n/K samples takes no part in the later classes. The whole table is redrawn until every client holds
    `min_size` samples (0: the first draw counts), which favours milder skew; `draws` of the split tells how often.
    `min_size_fallback` settles for 10, 5, 2 or 1 samples, with a warning, where `min_size` is out of reach.
    """

    alpha: float = 0.1
    cap: bool = True
    min_size: int = 10
    min_size_fallback: bool = False
    allow_empty: bool = False

    def __post_init__(self) -> None:
        as_alpha(self.alpha)
        as_whole("min_size", self.min_size, 0)
        for name in ("cap", "min_size_fallback", "allow_empty"):
            as_flag(name, getattr(self, name))

    def divide(self, request: Request) -> Split:
        draw = self._accepted(request)
        return request.by_shares(draw.shares.T, draws=draw.draws)

    def _accepted(self, request: Request) -> Draw:
        levels = self._levels(request)
        best = self.min_size
        for level in levels:
            last = level == levels[-1]
            if level > best and not last:
                continue  # the draws are the same for every level, and none of them reached this one
            draw = self._first_draw(request, level, DRAW_LIMIT if last else FALLBACK_DRAW_LIMIT)
            if draw.smallest >= level:
                self._warn_if_lowered(level)
                return draw
            best = draw.smallest
        remedy = "" if self.min_size_fallback else ", or set min_size_fallback=true"
        raise Misconfigured(
            f"none of {draw.draws} draws gave every client {levels[-1]} samples (min_size={self.min_size}, "
            f"alpha={self.alpha}, num_clients={request.num_clients}, {len(request.labels)} samples): the best left "
            f"{best} to the smallest client. Lower min_size, raise alpha or use fewer clients{remedy}."
        )

    def _levels(self, request: Request) -> list[int]:
        """Minimum sizes to try in turn, less those that would need more samples than there are."""
        lower = [size for size in FALLBACK_SIZES if size < self.min_size] if self.min_size_fallback else []
        mean = len(request.labels) // request.num_clients
        levels = [size for size in (self.min_size, *lower) if size <= mean]
        if not levels:
            raise Misconfigured(
                f"min_size={self.min_size} for num_clients={request.num_clients} needs "
                f"{self.min_size * request.num_clients} samples, but there are {len(request.labels)}. "
                f"Use min_size={mean} or less, or fewer clients."
            )
        return levels

    def _warn_if_lowered(self, level: int) -> None:
        if level < self.min_size:
            warnings.warn(
                f"min_size={self.min_size} was out of reach at alpha={self.alpha}; clients hold at least {level} "
                f"samples instead (min_size_fallback=true).",
                stacklevel=2,
            )

    def _first_draw(self, request: Request, min_size: int, limit: int) -> Draw:
        """The first of `limit` draws that gives every client `min_size` samples, else the best of them all."""
        class_sizes = request.class_sizes()
        done, best = 0, -1
        for weights in self._log_weights(request):
            shares, sizes = capped_shares(weights, class_sizes, self.cap)
            smallest = sizes.min(axis=1)[: limit - done]
            hits = np.flatnonzero(smallest >= min_size)
            if len(hits):
                return Draw(shares[hits[0]].copy(), int(smallest[hits[0]]), done + int(hits[0]) + 1)
            done, best = done + len(smallest), max(best, int(smallest.max()))
            if done >= limit:
                break
        return Draw(shares[0], best, done)

    def _log_weights(self, request: Request) -> Iterator[Floats]:
        """Endless batches of log Gamma(alpha) variables [draws, C, K]; normalised over K they are Dir(alpha)."""
        shape = (request.num_classes, request.num_clients)
        most = max(1, min(_BATCH_DRAWS, _BATCH_CELLS // math.prod(shape)))
        size, batch = 1, 0
        while True:
            yield log_gamma(request.generator(TABLE, batch), self.alpha, (size, *shape))
            size, batch = min(2 * size, most), batch + 1


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
