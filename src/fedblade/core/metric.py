"""A metric is sums that merge by addition, and a finaliser: it works stacked, distributed and deployed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedblade.core.fields import Field
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree

Found = dict[str, Any]
"""Numbers for the history, and nested lists of numbers (spectra, matrices) that go to a file of their own."""


@dataclass(frozen=True)
class Metric:
    """What to add up, and how to turn the totals into named numbers and lists.

    `passes` go over the measured samples with the global model. `local` is what each client of the cohort adds after
    its local training; with `of = "first"` only the one with the lowest id does. `finish` gets the totals of both by
    name; a metric with `local` is left out of rounds in which nobody trained. `fields` describe the numbers it writes,
    for reports, figures and `fedblade watch`; a number without a field is shown under its name.
    """

    passes: tuple[DataPass, ...]
    finish: Callable[[Mapping[str, Tree]], Found]
    local: tuple[Sum, ...] = ()
    of: Literal["all", "first"] = "all"
    fields: tuple[Field, ...] = ()
