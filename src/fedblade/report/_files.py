"""Files that the user asked for."""

from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic


def write_file(target: Path, content: bytes | str) -> Path:
    """Write a whole file, making its folder where needed, and return its path."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, content)
    except OSError as error:
        raise Misconfigured(f"cannot write '{target}' ({error.strerror or error}). Choose another place.") from error
    return target
