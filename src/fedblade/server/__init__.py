"""Server steps: pure functions from (state, sums) to state."""

from fedblade.server._average import average
from fedblade.server._prototypes import no_prototypes, update_prototypes

__all__ = ["average", "no_prototypes", "update_prototypes"]
