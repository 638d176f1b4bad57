"""A metric is a pass whose sums merge by addition, and a finaliser: it works stacked, distributed and deployed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree


@dataclass(frozen=True)
class Metric:
    """What to add up over a data set, and how to turn the totals into named numbers for the history."""

    passes: tuple[DataPass, ...]
    finish: Callable[[Mapping[str, Tree]], dict[str, float]]
