"""How hard a split makes training, whether its table is stored or drawn when asked for."""

from fedblade.hardness import Hardness, measure
from fedblade.partitions._split import Parts

MOST_DRAWN = 1_000
"""Clients that are tabulated of a split which draws them when asked; a population may have millions."""


def hardness(split: Parts, cohort: int) -> Hardness:
    """Measure a split for cohorts of `cohort` clients, nothing removed.

    Of a split whose clients draw their samples when asked, the first 1000 clients are measured, and `Hardness` says so.
    """
    return measure(split.table(MOST_DRAWN if split.on_demand else None), cohort, split.num_clients)
