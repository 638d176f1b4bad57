"""The state files in a folder. Files with other names are left alone."""

from collections.abc import Iterable
from pathlib import Path

from fedblade.core.errors import CorruptFile
from fedblade.core.state_file import StateFile, name_order, read_state_file

PUT_BACK = "Put the files back as they were, or start a new run elsewhere."
"""What to do about a file that is gone or another one."""


def state_files(folder: Path) -> list[Path]:
    """The finished state files, in the order in which they were begun."""
    files = [path for path in folder.glob("*") if name_order(path) and path.is_file()]
    return sorted(files, key=lambda path: name_order(path) or ())


def same_file(path: Path, digest: str, owner: str) -> StateFile:
    """The state file at `path`, which must have this digest because `owner` needs it."""
    if name_order(path) is None:
        raise CorruptFile(f"'{path}' is no name of a file of client states")
    try:
        file = read_state_file(path)
    except FileNotFoundError as error:
        raise CorruptFile(f"'{path}' is gone, and {owner} needs its client states") from error
    except CorruptFile as error:
        raise CorruptFile(f"{error}, and {owner} needs its client states") from error
    if file.digest != digest:
        raise CorruptFile(f"'{path}' holds other client states than {owner} needs")
    return file


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that are still there."""
    for path in paths:
        path.unlink(missing_ok=True)
