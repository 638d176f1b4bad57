"""Parquet files with pictures and labels, as the Hugging Face hub stores data sets."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.data._columns import Columns, check_type, holds_bytes, names_in, pick
from fedblade.data._pictures import Fit, Picture, decode_all, formats_of
from fedblade.data._source import PartName, Source, Task, refuse_twins, stored_in

_SPLIT = re.compile(r"(?:^|[/_.-])(train|test|validation|valid|val|dev)(?=[/_.-]|$)")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})")
_ROWS = 256
# The hub's copy of CIFAR-100 has this misprint.
_MISPRINTS = {"cra": "crab"}


def find_tables(root: Path) -> dict[PartName, list[Path]]:
    """Parquet files of the training and of the test part; the name of the file or folder says which part it is."""
    named: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.parquet")):
        match = _SPLIT.search(path.relative_to(root).as_posix().removesuffix(".parquet"))
        if match:
            named.setdefault(match[1], []).append(path)
    test = next((named[name] for name in ("test", "validation", "valid", "val", "dev") if name in named), [])
    tables: dict[PartName, list[Path]] = {"train": named.get("train", []), "test": test}
    for part, files in tables.items():
        _check_shards(root, part, files)
    return tables


def _check_shards(root: Path, part: str, files: Sequence[Path]) -> None:
    """Refuse a part with missing shards or with files of several configurations of a data set."""
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise Misconfigured(
            f"'{root}' has {part} tables in several folders ({', '.join(folders)}); expected one. "
            f"Give one of them as dataset.path."
        )
    shards = {int(match[1]): int(match[2]) for file in files if (match := _SHARD.search(file.name))}
    absent = sorted(set(range(max(shards.values(), default=0))) - set(shards))
    if absent:
        raise Misconfigured(
            f"'{folders[0]}' lacks {part} shard {absent[0]:05d} of {max(shards.values()):05d}. Download it again."
        )


def read_tables(
    root: Path, fit: Fit, columns: Columns, classes: Sequence[str] = (), *, stand_ins: bool = False
) -> Source | None:
    """Tables of pictures as a source, or None if there are none.

    `classes` are the expected names in label order. With `stand_ins` only their number counts, because copies of the
    data set give the classes different names.
    """
    tables = find_tables(root)
    if not tables["train"] and not tables["test"]:
        return None
    for part, files in tables.items():
        if not files:
            raise Misconfigured(f"'{root}' has no {part} table; expected files like {part}.parquet. Add them.")
    refuse_twins(tables["train"], tables["test"])
    files = [*tables["train"], *tables["test"]]
    opened = [_Table.open(file, columns) for file in files]
    names = _class_names(opened, classes, stand_ins)
    by_path = {table.path: table for table in opened}
    return Source(
        root=root,
        files=tuple(files),
        read=lambda part: (task for file in tables[part] for task in by_path[file].tasks(fit, len(names))),
        class_names=names,
        describe=lambda: stored_in(formats_of(first for table in opened for first in table.first()), files, "parquet"),
        options=f"{fit} {opened[0].image} {opened[0].label}",
        total=sum(table.rows for table in opened),
    )


def first_picture(root: Path, columns: Columns) -> Picture:
    """The first picture of the training part, from which a size can be read."""
    table = _Table.open(find_tables(root)["train"][0], columns)
    pictures = table.first()
    if not pictures:
        raise Misconfigured(f"'{table.path}' has no rows; expected pictures. Give a table with pictures.")
    return pictures[0]


def _class_names(tables: Sequence["_Table"], classes: Sequence[str], stand_ins: bool) -> tuple[str, ...]:
    """The class names stored in the tables, which must be the expected ones; without names, the numbers of labels."""
    naming = [table for table in tables if table.class_names]
    for table in naming:
        if classes:
            _check_names(table, classes, "", (lambda _: "") if stand_ins else _plain)
        if stand_ins or not classes:
            _check_names(table, naming[0].class_names, f" as in '{naming[0].path}'", str)
    if classes and not (stand_ins and naming):
        return tuple(classes)
    if naming:
        return naming[0].class_names
    return tuple(str(label) for label in range(max(table.largest_label() for table in tables) + 1))


def _check_names(table: "_Table", expected: Sequence[str], where: str, form: Callable[[str], str]) -> None:
    """Refuse a table whose class names differ from the expected ones; `form` removes differences of spelling."""
    stored, advice = table.class_names, "Check that this is the right data set and label column."
    if len(stored) != len(expected):
        raise Misconfigured(
            f"'{table.path}' names {len(stored)} classes in column '{table.label}'; expected {len(expected)}{where}. "
            f"{advice}"
        )
    for label, (name, wanted) in enumerate(zip(stored, expected, strict=True)):
        if form(name) != form(wanted):
            raise Misconfigured(
                f"'{table.path}' names class {label} {name!r} in column '{table.label}'; expected {wanted!r}{where}. "
                f"{advice}"
            )


def _plain(name: str) -> str:
    """A class name without case, spaces and signs, which copies spell differently, and without a known misprint."""
    letters = "".join(letter for letter in name.casefold() if letter.isalnum())
    return _MISPRINTS.get(letters, letters) or name


@dataclass(frozen=True)
class _Table:
    """One parquet file: its columns, number of rows and class names."""

    path: Path
    image: str
    label: str
    nested: bool
    rows: int
    class_names: tuple[str, ...]

    @staticmethod
    def open(path: Path, columns: Columns) -> "_Table":
        parquet = need("pyarrow.parquet", "data", "pyarrow", "reading parquet files")
        try:
            with parquet.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
        types = need("pyarrow.types", "data", "pyarrow", "reading parquet files")
        pictures = [field.name for field in schema if holds_bytes(field.type, types)]
        labels = [field.name for field in schema if types.is_integer(field.type)]
        image = pick(path, "image", columns.image, pictures, ("image", "img"))
        usual = ("label", "fine_label", "labels")
        if not labels or columns.label:
            check_type(path, schema, (columns.label,) if columns.label else usual, labels)
        label = pick(path, "label", columns.label, labels, usual)
        names = names_in(schema.metadata, label)
        return _Table(path, image, label, types.is_struct(schema.field(image).type), rows, names)

    def batches(self, rows: int = _ROWS, image: bool = True) -> Iterator[list[Picture]]:
        """Encoded pictures with labels, at most `rows` at a time (`image=False`: labels only)."""
        parquet = need("pyarrow.parquet", "data", "pyarrow", "reading parquet files")
        wanted = [self.label] + ([f"{self.image}.bytes" if self.nested else self.image] if image else [])
        row = 0
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(rows, columns=wanted):
                    labels = batch.column(self.label).to_pylist()
                    data: list[Any] = batch.column(self.image).to_pylist() if image else [b""] * len(labels)
                    yield [
                        self._picture(row + i, value, label)
                        for i, (value, label) in enumerate(zip(data, labels, strict=True))
                    ]
                    row += len(labels)
        except (OSError, ValueError) as error:
            raise _damaged(self.path, error) from error

    def first(self) -> list[Picture]:
        """The first picture of the file as a list; the list is empty if the file has no rows."""
        return next(self.batches(1), [])

    def _picture(self, row: int, value: Any, label: int | None) -> Picture:
        data = value["bytes"] if isinstance(value, dict) else value
        if data is None or label is None:
            lacking = self.label if label is None else self.image
            raise Misconfigured(f"'{self.path}' row {row} has no '{lacking}'; expected a value. Restore the file.")
        return Picture(data, label, where=f"{self.path} row {row}")

    def tasks(self, fit: Fit, num_classes: int) -> Iterator[Task]:
        """Blocks of decoded pictures; labels outside 0 … num_classes − 1 are refused."""
        for pictures in self.batches():
            for picture in pictures:
                if not 0 <= picture.label < num_classes:
                    raise Misconfigured(
                        f"'{picture.name}' has label {picture.label}; expected 0 to {num_classes - 1}. Check that this "
                        f"is the right data set and label column ('{self.label}')."
                    )
            yield partial(decode_all, pictures, fit)

    def largest_label(self) -> int:
        """Largest label of the file."""
        batches = self.batches(1 << 14, image=False)
        return max((picture.label for pictures in batches for picture in pictures), default=-1)


def _damaged(path: Path, error: Exception) -> Misconfigured:
    reason = str(error).partition("\n")[0]
    return Misconfigured(f"'{path}' is damaged or not a parquet file ({reason}). Download it again.")
