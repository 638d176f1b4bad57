"""How hard a split makes training, whether its table is stored or drawn when asked for."""

from fedblade.hardness import Hardness, measure
from fedblade.partitions._split import Parts


def hardness(split: Parts, cohort: int) -> Hardness:
    """Measure a split for cohorts of `cohort` clients, nothing removed.

    Of a split whose clients draw their samples when asked, the first 1000 clients are measured, and `Hardness` says so.
    """
    return measure(split.short_table(), cohort, split.num_clients)
