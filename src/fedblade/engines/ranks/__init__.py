"""The parts of the distributed engine: processes that exchange data, shares of a cohort, and sums over ranks."""

from fedblade.engines.ranks._errors import describe_error, raise_described_error, raise_first_error
from fedblade.engines.ranks._meeting import join, launched
from fedblade.engines.ranks._ranks import LostRank, Ranks
from fedblade.engines.ranks._worker import RankWorker, serve

__all__ = [
    "LostRank",
    "RankWorker",
    "Ranks",
    "describe_error",
    "join",
    "launched",
    "raise_described_error",
    "raise_first_error",
    "serve",
]
