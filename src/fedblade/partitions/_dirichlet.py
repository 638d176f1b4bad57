"""Dirichlet label skew. The table of shares is drawn, capped and redrawn before samples are dealt."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import as_alpha, as_flag, as_whole
from fedblade.partitions._search import DRAW_LIMIT, Draw, Search
from fedblade.partitions._split import TABLE, Split

# With a fallback, the search for one minimum size ends sooner. One success in 20,000 draws is still found.
FALLBACK_DRAW_LIMIT = 250_000
FALLBACK_SIZES = (10, 5, 2, 1)


@partitions.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Dirichlet label skew: a draw of Dir(alpha) for each class divides it among the clients; small alpha, strong skew.

    Class after class, q ~ Dir(alpha·1_K) is the share of the class that each client gets. With `cap` a client that
    already holds n/K samples gets none of the later classes. The whole table is redrawn until every client holds
    `min_size` samples (0: the first draw counts), which favours milder skew; `draws` of the split counts the draws.
    The search ends with an error after a million draws, or sooner if success is unlikely.
    With `min_size_fallback` it accepts 10, 5, 2 or 1 samples, with a warning, if `min_size` is out of reach.
    """

    alpha: float = 0.1
    cap: bool = True
    min_size: int = 10
    min_size_fallback: bool = False
    allow_empty: bool = False
    empty_remedy: ClassVar[str] = "Use fewer clients, another seed, min_size=1 or allow_empty=true."

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
        search = self._search(request)
        best = self.min_size
        for level in levels:
            last = level == levels[-1]
            if level > best and not last:
                continue  # every level has the same draws, and the best of them did not reach this level
            draw = search.first(level, DRAW_LIMIT if last else FALLBACK_DRAW_LIMIT)
            if draw.smallest >= level:
                self._warn_if_lowered(level)
                return draw
            if not draw.given_up:
                best = draw.smallest
        remedy = "" if self.min_size_fallback else ", or set min_size_fallback=true"
        hopeless = ", and more draws would hardly help" if draw.given_up else ""
        raise Misconfigured(
            f"none of {draw.draws} draws gave every client {levels[-1]} samples (min_size={self.min_size}, "
            f"alpha={self.alpha}, num_clients={request.num_clients}, {len(request.labels)} samples): the best left "
            f"{draw.smallest} to the smallest client{hopeless}. "
            f"Lower min_size, raise alpha or use fewer clients{remedy}."
        )

    def _search(self, request: Request) -> Search:
        """The draws of this request, which do not depend on the minimum size."""
        generator = partial(request.generator, TABLE)
        return Search(request.class_sizes(), request.num_clients, self.alpha, self.cap, generator)

    def _levels(self, request: Request) -> list[int]:
        """Minimum sizes to try in turn, without those that need more samples than there are."""
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
