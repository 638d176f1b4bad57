"""The file by which a hospital tells the sums of its table before a run. Everything in it can be read by a person.

A file that came from elsewhere may hold anything, so every field is checked.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_once
from fedblade.core.untrusted_text import short_repr
from fedblade.data.client_parts import parts_of, read_parts
from fedblade.data.client_sums import ClientSums, client_sums
from fedblade.data.own_files import ReadSettings
from fedblade.data.table_sums import MOST_CATEGORIES, CategorySums, NumberSums, TableSums
from fedblade.flower._foreign_table import LARGEST_COUNT, LONGEST_TEXT, ForeignTable, is_plain_text
from fedblade.flower._sums_options import as_options
from fedblade.flower.agreement import MOST_CLASSES, MOST_COLUMNS, read_settings, settings_table

FORMAT = 1
_LARGEST_FILE = 2**24
_ADVICE = "Make the file anew: fedblade flower sums."
_KEYS = ("format", "client", "seed", "rows", "test_rows", "labels", "label", "missing", "drop", "categories", "columns")
_ROUNDING, _UNDERFLOW = 1e-9, 1e-150


@dataclass(frozen=True)
class SumsFile:
    """What a client tells.

    `seed` drew the test samples that were held out; None if the client has test samples. `settings` are those by which
    the table was read; None for arrays.
    """

    client: int
    seed: int | None
    settings: ReadSettings | None
    sums: ClientSums

    def text(self) -> str:
        """The content of the file; each column is one line."""
        table: dict[str, Any] = {"format": FORMAT, "client": self.client, "seed": self.seed}
        table |= {"rows": self.sums.rows, "test_rows": self.sums.test_rows, "labels": list(self.sums.labels)}
        lines = [f"  {_json(key)}: {_json(value)}" for key, value in table.items()]
        if self.settings is not None and self.sums.columns is not None:
            lines += [f"  {_json(key)}: {_json(value)}" for key, value in settings_table(self.settings).items()]
            columns = self.sums.columns.to_json().items()
            inner = ",\n".join(f"    {_json(name)}: {_json(column)}" for name, column in columns)
            lines.append(f'  "columns": {{\n{inner}\n  }}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def sums_of(path: str, client: int, seed: int | None, settings: ReadSettings) -> SumsFile:
    """The sums of a client's file, or of its folder with the files `train` and `test`.

    Without test samples the run's `seed` is needed, because it draws those that are held out.
    """
    with as_options():
        samples = read_parts(parts_of(path), settings)
        held_out = samples.x_test is None
        if held_out and seed is None:
            raise Misconfigured(
                f"'{path}' has no test samples, so a fifth of its rows is held out in the run and is in no sum. Give "
                f"the seed that draws them: --seed N, with the seed in the coordinator's fedblade.toml."
            )
        sums = client_sums(samples, (seed or 0, client))
    is_array = sums.columns is None
    if is_array and not isinstance(sums.labels[0], str):
        raise Misconfigured(
            f"'{path}' holds arrays, and its labels are numbers; expected a table, or labels that are names. A node "
            f"reads such arrays without sums."
        )
    return SumsFile(client, seed if held_out else None, None if is_array else settings, sums)


def write_sums_file(path: Path, file: SumsFile) -> None:
    """Write a new file for its owner alone. What `agree` would refuse is refused here."""
    if path.exists() or path.is_symlink():
        raise Misconfigured(f"--out: '{path}' exists, and is not overwritten. Remove it, or choose another name.")
    text = file.text()
    _file_of(text, str(path))
    try:
        write_once(path, text, mode=0o600)
    except OSError as error:
        raise Misconfigured(f"--out: cannot write '{path}': {error.strerror}. Choose another place.") from error


def read_sums_file(path: Path) -> SumsFile:
    """The checked content of a file of sums."""
    try:
        if not path.is_file():
            raise Misconfigured(f"'{path}' does not exist. Give the files that `fedblade flower sums` wrote.")
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise Misconfigured(f"'{path}' cannot be read: {error.strerror}.") from error
    try:
        return _file_of(content.decode(), str(path))
    except UnicodeDecodeError:
        raise Misconfigured(f"'{path}' is not text in UTF-8; expected a file of sums. {_ADVICE}") from None


def _file_of(text: str, path: str) -> SumsFile:
    if len(text.encode(errors="surrogatepass")) > _LARGEST_FILE:
        raise Misconfigured(
            f"'{path}' has more than {_LARGEST_FILE // 2**20} MiB; expected a file of sums, which is much smaller. "
            f"Leave columns out: --drop."
        )
    table = ForeignTable(_parsed(text, path), f"'{path}'", _ADVICE, _KEYS)
    if type(table.raw("format")) is not int or table.raw("format") != FORMAT:
        raise table.wrong("format", f"{FORMAT}, the form of this release")
    rows, test_rows = table.whole("rows", low=1), table.whole("test_rows")
    seed = None if table.raw("seed") is None else table.whole("seed", high=2**63)
    columns = TableSums(_columns(table, rows)) if "columns" in table else None
    return SumsFile(
        table.whole("client"),
        seed,
        None if columns is None else read_settings(table),
        ClientSums(rows, test_rows, table.labels("labels", MOST_CLASSES), columns),
    )


def _parsed(text: str, path: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Misconfigured(
            f"'{path}' is no valid JSON, or has a number that is not finite; expected a file of sums. {_ADVICE}"
        ) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _columns(table: ForeignTable, rows: int) -> dict[str, NumberSums | CategorySums]:
    given = table.raw("columns")
    if not isinstance(given, Mapping) or not 0 < len(given) <= MOST_COLUMNS:
        raise table.wrong("columns", f"1 to {MOST_COLUMNS:,} columns by name")
    for name in given:
        if not is_plain_text(name):
            expected = f"names of 1 to {LONGEST_TEXT} printable characters. Rename the column"
            raise table.refusal(f"has a column {short_repr(name)}", expected)
    return {name: _column(table, name, column, rows) for name, column in given.items()}


def _column(table: ForeignTable, name: str, given: object, rows: int) -> NumberSums | CategorySums:
    keys = ("count", "total", "squares", "values", "all_different")
    column = ForeignTable(given, f"{table.where}, column {name!r},", _ADVICE, keys)
    count, all_different = column.whole("count", high=min(rows, LARGEST_COUNT)), column.truth("all_different")
    if "values" in column:
        if "total" in column or "squares" in column:
            raise column.refusal("has sums and categories", "one of them")
        values = None if column.raw("values") is None else column.ascending_texts("values", MOST_CATEGORIES)
        if values is not None and (len(values) > count or (count and not values)):
            raise column.wrong("values", f"the different texts of {count} rows")
        return CategorySums(count, values, all_different)
    total, squares = column.number("total"), column.number("squares")
    # By the inequality of Cauchy and Schwarz; for count 0 both are 0.
    if squares < 0 or abs(total) > math.sqrt(count) * math.sqrt(squares) * (1 + _ROUNDING) + _UNDERFLOW * count:
        raise column.refusal(
            f"has total = {total!r} and squares = {squares!r}", f"the sums over {count} numbers and over their squares"
        )
    return NumberSums(count, total, squares, all_different)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
