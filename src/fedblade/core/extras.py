"""Optional packages, imported only when something needs them."""

import importlib
from typing import Any

from fedblade.core.errors import MissingExtra


def need(module: str, extra: str, package: str, purpose: str) -> Any:
    """The module of a package that an extra of FedBlade installs, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(package, extra, purpose) from error
