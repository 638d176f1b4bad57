"""Imports Python files with the content that was checked, even if the files have changed since."""

from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

_contents: dict[Path, bytes] = {}


def fix_source(file: Path, content: bytes) -> None:
    """From now on an import of a file in this process runs this content; the path is absolute and resolved."""
    _contents[file] = content


def source_spec(name: str, file: Path) -> ModuleSpec | None:
    """How a file is imported as a module of this name."""
    content = _contents.get(file)
    return spec_from_file_location(name, file, loader=None if content is None else FixedSource(content, file))


class FixedSource(SourceLoader):
    """Loads these very bytes."""

    def __init__(self, content: bytes, file: Path) -> None:
        self._content, self._file = content, file

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - Python's API
        """The file, for messages."""
        return str(self._file)

    def get_data(self, path: str) -> bytes:  # noqa: ARG002 - Python's API
        """The bytes of the file when it was checked."""
        return self._content
