"""Tables in text files: CSV with commas, semicolons, tabs or bars, in UTF-8, with names of columns in the first row."""

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import is_number
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._text_columns import TextColumns

_DELIMITERS = ",;\t|"
_ROWS = 1 << 13
"""So many rows are held as text at a time."""


def read_csv(path: Path, settings: ReadSettings) -> OwnSamples:
    """A table whose first row names the columns. Without a label column it is an error that lists the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(file, path, settings)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Misconfigured(
            f"'{path}' is not text in UTF-8 (it has the byte 0x{byte:02x}). Save it as UTF-8: from Latin-1, "
            f"iconv -f latin1 -t utf-8 OLD > NEW; from a spreadsheet, 'CSV UTF-8'."
        ) from None
    except csv.Error as error:
        raise Misconfigured(f"'{path}' cannot be read as CSV: {error}. Correct its quotes and lines.") from None


def _read(file: TextIO, path: Path, settings: ReadSettings) -> OwnSamples:
    delimiter = _delimiter(file, path)
    rows = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
    header = [name.strip() for name in next(rows)]
    _check_header(header, path)
    columns = TextColumns(str(path), header, settings)
    for block in _blocks(rows, len(header), path):
        columns.add(block)
    return columns.samples(source="a table in a CSV file")


def _delimiter(file: TextIO, path: Path) -> str:
    """The sign that splits the first row into most cells."""
    first = file.readline()
    file.seek(0)
    if not first.strip():
        raise Misconfigured(f"'{path}' is empty or begins with an empty line; expected the names of the columns.")
    return max(_DELIMITERS, key=lambda sign: len(next(csv.reader([first], delimiter=sign, skipinitialspace=True))))


def _check_header(header: Sequence[str], path: Path) -> None:
    if len(header) < 2:
        raise Misconfigured(
            f"'{path}' has one column, '{header[0]}'; expected a label column and at least one other, with commas, "
            f"semicolons, tabs or bars between them."
        )
    twice = [name for i, name in enumerate(header) if name in header[:i]] if len(set(header)) < len(header) else []
    if twice:
        raise Misconfigured(f"'{path}' has two columns '{twice[0]}'; expected different names. Rename one of them.")
    if "" in header[1:]:
        raise Misconfigured(f"'{path}' has no name for column {header.index('', 1) + 1}. Name it in the first row.")
    if all(is_number(name) for name in header):
        raise Misconfigured(
            f"the first row of '{path}' has numbers only; expected the names of the columns. Add a row with names."
        )


def _blocks(rows: Iterator[list[str]], width: int, path: Path) -> Iterator[list[tuple[str, ...]]]:
    """The cells in blocks of rows, column by column. Empty lines at the end are left out."""
    done = 1
    while block := list(itertools.islice(rows, _ROWS)):
        while block and not block[-1]:
            block.pop()
        if {width}.issuperset(map(len, block)):
            done += len(block)
            yield list(zip(*block, strict=True))
            continue
        index = next(index for index, row in enumerate(block) if len(row) != width)
        raise Misconfigured(
            f"row {done + index + 1} of '{path}' has {len(block[index])} cells; expected {width}, as in the first row. "
            f"Correct the row; a cell with the delimiter in it needs quotes."
        )
