"""What the distributed engine is made of: processes that talk, shares of a cohort, and sums over ranks."""

from fedblade.engines.ranks._part import Part, serve
from fedblade.engines.ranks._ranks import Lost, Ranks, join, launched
from fedblade.engines.ranks._sums import described, raise_described, refuse_errors

__all__ = ["Lost", "Part", "Ranks", "described", "join", "launched", "raise_described", "refuse_errors", "serve"]
