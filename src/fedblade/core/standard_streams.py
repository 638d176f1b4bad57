"""Standard streams that never fail: work goes on when nobody can read what it prints.

The reader of a pipe goes away (`| head -1`), the disk of a log is full, or a terminal is closed: the first write that
fails is remembered, and everything after it is thrown away.
"""

import codecs
import contextlib
import io
import os
import select
import sys
from typing import Any, TextIO

_NUMBERS = {"stdout": 1, "stderr": 2}
_ANY_TEXT = "fedblade-any-text"
"""Name of the way in which text is printed that the encoding of a stream does not have."""


class _LosableFile(io.FileIO):
    """A file whose writes never fail. `lost` is the error of the first write that failed."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write bytes, or throw them away if that is impossible; returns how many are dealt with."""
        try:
            while (written := super().write(data)) is None:
                # Somebody made the file non-blocking, and it takes nothing at the moment.
                select.select([], [self.fileno()], [])
        except OSError as error:
            self.lost = self.lost or error
            _open_nowhere(self.fileno())
            return memoryview(data).nbytes
        return written


def _encode_any_text(error: UnicodeError) -> tuple[str | bytes, int]:
    """Names of files that are no text are printed as the bytes that they are; other characters are escaped."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(_ANY_TEXT, _encode_any_text)


def survive_lost_output() -> None:
    """Let standard output and standard error of this process never fail. Closed ones become open and lead nowhere.

    A closed one must be opened, because the next file would get its number, and prints would be written into that file.
    """
    for number in (0, *_NUMBERS.values()):
        try:
            os.fstat(number)
        except OSError:
            _open_nowhere(number)
    for name, number in _NUMBERS.items():
        setattr(sys, name, _surviving(getattr(sys, name), number))


def lost_output() -> OSError | None:
    """Why standard output could not be written, None if all of it was."""
    sys.stdout.flush()
    raw = _raw_file(sys.stdout)
    return raw.lost if isinstance(raw, _LosableFile) else None


def _surviving(stream: TextIO | None, number: int) -> TextIO:
    """The stream with a file below it that never fails; a stream that is no plain file stays as it is."""
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(_LosableFile(number, "w", closefd=False)), encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper) or type(_raw_file(stream)) is not io.FileIO:
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    file = _LosableFile(number, "w", closefd=False)
    return io.TextIOWrapper(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=_ANY_TEXT if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _raw_file(stream: TextIO) -> object:
    """The file below the buffers of a stream; with `python -u` there is no buffer of bytes."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _open_nowhere(number: int) -> None:
    """Let a file number lead to the null device, if the system has one and allows another open file."""
    with contextlib.suppress(OSError):
        handle = os.open(os.devnull, os.O_RDWR)
        if handle != number:
            os.dup2(handle, number)
            os.close(handle)
