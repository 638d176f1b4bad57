"""Server steps: pure functions from (state, sums) to state."""

from fedblade.server._add import accumulate, one
from fedblade.server._average import average
from fedblade.server._dynamic import average_less_h
from fedblade.server._extrapolate import extrapolate
from fedblade.server._momentum import momentum
from fedblade.server._normalised import average_normalised
from fedblade.server._prototypes import no_prototypes, update_prototypes

__all__ = [
    "accumulate",
    "average",
    "average_less_h",
    "average_normalised",
    "extrapolate",
    "momentum",
    "no_prototypes",
    "one",
    "update_prototypes",
]
