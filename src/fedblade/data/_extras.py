"""Optional packages, imported only when a file that needs them is read."""

import importlib
from typing import Any

from fedblade.core.errors import MissingExtra


def need(module: str, package: str, purpose: str) -> Any:
    """The module of an optional package, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(package, "data", purpose) from error
