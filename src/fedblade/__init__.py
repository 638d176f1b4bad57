"""Federated learning when clients see different labels.

Everything a script needs is here: `run`, `compare`, `sweep` and `load`, and the packages `losses`, `heads`,
`partitions` and `diagnostics`, whose functions work in any PyTorch loop. `fedblade.api` has everything for parts of
your own. Nothing heavy is imported until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedblade._version import __version__

if TYPE_CHECKING:
    from fedblade import api, data, diagnostics, heads, losses, models, partitions
    from fedblade.runs import Result, TrainedModel, load, run
    from fedblade.studies import Comparison, Sweep, compare, sweep

__all__ = [
    "Comparison",
    "Result",
    "Sweep",
    "TrainedModel",
    "__version__",
    "api",
    "compare",
    "data",
    "diagnostics",
    "heads",
    "load",
    "losses",
    "models",
    "partitions",
    "run",
    "sweep",
]

_STUDIES = ("Comparison", "Sweep", "compare", "sweep")
_MODULES = ("api", "data", "diagnostics", "heads", "losses", "models", "partitions")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import fedblade` does not load torch."""
    if name in _MODULES:
        return importlib.import_module(f"fedblade.{name}")
    if name in __all__:
        return getattr(importlib.import_module("fedblade.studies" if name in _STUDIES else "fedblade.runs"), name)
    raise AttributeError(f"module 'fedblade' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
