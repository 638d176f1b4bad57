"""`fedblade flower sums` and `agree`: how hospitals with tables agree on their encoding before a run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedblade.data.client_sums import ClientSums
    from fedblade.data.own_files import ReadSettings
    from fedblade.data.table_encoding import TableEncoding
    from fedblade.flower.agreement import Agreement
    from fedblade.flower.sums_file import SumsFile

_FEW = 10


def sums(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The client's table, or a folder with the files train and test.")
    ],
    client: Annotated[int, typer.Option("--client", metavar="N", min=0, help="The client's number in the run.")],
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", min=0, help="The run's seed, which draws test samples if the file has none."
        ),
    ] = None,
    label: Annotated[str, typer.Option("--label", metavar="NAME", help="The column of the labels.")] = "label",
    missing: Annotated[
        str, typer.Option("--missing", metavar="HOW", help="Empty cells: refuse them, or fill them.")
    ] = "refuse",
    drop: Annotated[str, typer.Option("--drop", metavar="A,B", help="Columns to leave out.")] = "",
    categories: Annotated[
        str, typer.Option("--categories", metavar="A,B", help="Columns of numbers that are names of categories.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="A new file for the sums; only you can read it.")
    ] = None,
) -> None:
    """Show what of a hospital's table the other hospitals need, and write it into a file. Nothing is sent.

    These are sums over the training rows: the count, the mean and the deviation of each column of numbers, the
    categories of each column of text, and the names of the classes. The coordinator makes an agreement of the files of
    all hospitals: fedblade flower agree.
    """
    from fedblade.core.errors import Misconfigured
    from fedblade.data.own_files import ReadSettings
    from fedblade.flower.sums_file import sums_of, write_sums_file

    if missing not in ("refuse", "fill"):
        raise Misconfigured(f"--missing {missing} is neither 'refuse' nor 'fill'.")
    settings = ReadSettings.of(label, "fill" if missing == "fill" else "refuse", drop, categories)
    told = sums_of(str(file), client, seed, settings)
    if out is not None:
        write_sums_file(out, told)
    typer.echo(_what_leaves(told))
    if out is None:
        typer.echo("Nothing was written or sent. --out FILE.json writes this into a file for the coordinator.")
    else:
        typer.echo("Nothing was sent. The file is text: read it, then give it to the coordinator.")
        typer.echo(str(out))


def agree(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app, made by `fedblade flower init`.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json...", help="Files of sums, one of each client that has given one.")
    ],
) -> None:
    """Make an agreement of the sums of all hospitals, and write it into the app: how every node encodes its table.

    It is the table flower.agreement of fedblade.toml, with mean and deviation of every column of numbers, the
    categories of every column of text, and the names of the classes. Nodes take it from the app that they have pinned.
    """
    from fedblade.flower.agreeing import agree
    from fedblade.flower.app_folder import CONFIG, find_app

    app = find_app(folder)
    found = agree(app, files)
    typer.echo(_what_holds(found.agreement, found.num_classes))
    for note in found.notes:
        typer.echo(_printable(note))
    if not found.changed:
        typer.echo(f"{folder / CONFIG} has this agreement already, and stays as it is")
        return
    typer.echo(
        f"written into {folder / CONFIG}, so the app has another digest. Every hospital reads the file and pins the "
        f"new digest: fedblade flower digest {shlex.quote(str(folder))}"
    )


def _what_leaves(file: "SumsFile") -> str:
    """What is in a file of sums, for the person who decides whether it leaves."""
    from fedblade.core.words import plural

    told = file.sums
    held_out = "" if file.seed is None else f", held out by seed {file.seed},"
    lines = [
        f"client {file.client}: sums over {plural(told.rows, 'training row')}; "
        f"{plural(told.test_rows, 'test row')}{held_out} in no sum"
    ]
    if told.columns is not None:
        rows = [(name, *_column_cells(column)) for name, column in told.columns.columns.items()]
        lines.append(_text_table(("column", "holds", "values", "what leaves"), rows, "values"))
        lines += _warnings(told)
    lines.append(f"labels, without their counts: {_listed(tuple(map(str, told.labels)))}")
    return "\n".join(lines)


def _warnings(told: "ClientSums") -> list[str]:
    """Lines about sums that tell much about single rows."""
    from fedblade.core.words import plural
    from fedblade.data.table_sums import NumberSums

    assert told.columns is not None  # noqa: S101 - arrays have no sums
    if told.rows < _FEW:
        return [f"watch out: sums over so few rows tell much about each of them ({told.rows} rows)"]
    lines = [
        f"watch out: column '{_printable(name)}' has {plural(column.count, 'value')}, and sums over so few tell much "
        f"about each of them"
        for name, column in told.columns.columns.items()
        if isinstance(column, NumberSums) and 0 < column.count < _FEW
    ]
    return lines + [
        f"watch out: column '{_printable(name)}' has texts that one row alone has, and they leave too: {_listed(texts)}"
        for name, texts in told.single.items()
    ]


def _column_cells(column: object) -> tuple[str, str, str]:
    """What a column holds, how many values it has, and what of them leaves."""
    from fedblade.data.table_sums import CategorySums, NumberSums

    if isinstance(column, NumberSums):
        if column.count == 0:
            return "no value", "0", "the count"
        mean = column.total / column.count
        deviation = max(0.0, column.squares / column.count - mean * mean) ** 0.5
        hint = "; an identifier?" if column.all_different and column.count >= _FEW else ""
        return "numbers", f"{column.count:,}", f"mean {mean:.6g}, deviation {deviation:.6g} (as two sums){hint}"
    assert isinstance(column, CategorySums)  # noqa: S101 - there are two kinds
    if column.values is None:
        return "text", f"{column.count:,}", "no text, because every row has another one"
    many = f"{len(column.values)} (names of people?): " if len(column.values) > _FEW else ""
    return "text", f"{column.count:,}", f"texts {many}{_listed(column.values)}"


def _what_holds(agreement: "Agreement", num_classes: int) -> str:
    """An agreement in words."""
    from fedblade.core.words import plural, short_listing

    clients = short_listing([str(client) for client in agreement.clients])
    lines = [f"sums of {plural(len(agreement.clients), 'client')} ({clients}), {agreement.rows:,} training rows"]
    if agreement.settings is not None and agreement.encoding is not None:
        lines.append(f"read with {_options(agreement.settings)}")
        lines.append(_text_table(("column", "becomes"), _encoding_rows(agreement.encoding), ""))
        lines.append(f"{plural(agreement.encoding.width, 'input')} in all")
    if agreement.classes is None:
        lines.append(f"{num_classes} classes: labels are the class numbers 0 to {num_classes - 1}")
    else:
        lines.append(f"{num_classes} classes: {_listed(tuple(map(str, agreement.classes)))}")
    return "\n".join(lines)


def _options(settings: "ReadSettings") -> str:
    """The options of `fedblade flower sums` by which all tables are read."""
    lists = ("drop", ",".join(settings.drop)), ("categories", ",".join(settings.categories))
    given = ("label", settings.label), ("missing", settings.missing), *lists
    return _printable(" ".join(f"--{key} {shlex.quote(value)}" for key, value in given if value))


def _encoding_rows(encoding: "TableEncoding") -> list[tuple[str, str]]:
    from fedblade.data.table_encoding import NumberColumn

    rows = [
        (column.name, f"(number - {column.mean:.6g}) / {column.std:.6g}")
        if isinstance(column, NumberColumn)
        else (column.name, f"an input for each of {_listed(column.values)}")
        for column in encoding.columns
    ]
    return rows + [(name, "no input: left out") for name in encoding.left_out]


def _text_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: str) -> str:
    from fedblade.results import Table, text_table

    return text_table(Table.of_texts(header, [tuple(map(_printable, row)) for row in rows], (numeric,)))


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(map(_printable, texts))


def _printable(text: str) -> str:
    from fedblade.core.untrusted_text import printable

    return printable(text, len(text))
