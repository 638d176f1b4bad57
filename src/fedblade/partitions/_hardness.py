"""How hard a split makes training."""

from fedblade.hardness import Hardness, measure
from fedblade.partitions._split import Parts


def hardness(split: Parts, cohort: int) -> Hardness:
    """Measure a split for cohorts of `cohort` clients, before classes are removed.

    Of a `DrawnSplit` the first 1000 clients are measured, and `Hardness` says so.
    """
    return measure(split.short_table(), cohort, split.num_clients)
