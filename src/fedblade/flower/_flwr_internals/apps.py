"""The bytes of an app."""

import warnings
from pathlib import Path

from flwr.cli.build import build_fab_from_disk

from fedblade.core.errors import Misconfigured


def app_bytes(folder: Path) -> bytes:
    """The bytes that `flwr run` sends for the app in a folder: the same for the same files, on every machine."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower uses an old name of a function of pathspec
            return bytes(build_fab_from_disk(folder))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"'{folder}' cannot be packed as a Flower app: {error}. Correct the folder.") from error
