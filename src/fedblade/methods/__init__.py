"""One file per method. A name may add regularisers: `fedprox+feddecorr` (see `compose`)."""

from fedblade.methods._compose import Composition, compose

__all__ = ["Composition", "compose"]
