"""A metric: sums over samples or clients, and a function that makes numbers of their totals.

Sums merge by addition, so that a metric works with every engine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedblade.core.fields import Field
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree

MetricResult = dict[str, Any]
"""By name: numbers for the history, and nested lists of numbers (spectra, matrices) for `diagnostics.jsonl`."""


@dataclass(frozen=True)
class Metric:
    """What to add up, and how the totals become named numbers and lists.

    `passes` are sums over the test samples by the global model. `local` are sums over the clients of the round after
    their local training; with `clients="first"` only the client with the lowest id takes part. `finish` gets the totals
    of both by name. A metric with `local` is left out of rounds in which no client trained. `fields` describe the
    numbers for the report, the figures and `fedblade watch`; a number without a field is shown under its name.
    """

    passes: tuple[DataPass, ...]
    finish: Callable[[Mapping[str, Tree]], MetricResult]
    local: tuple[Sum, ...] = ()
    clients: Literal["all", "first"] = "all"
    fields: tuple[Field, ...] = ()
