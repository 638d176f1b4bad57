"""Makes an agreement of the sums of all clients, and writes it into the configuration of an app.

Sums are added in the order of the clients' numbers, so that the encoding is that of a run on one machine, to the last
bit.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.core.words import listing
from fedblade.data.client_sums import classes_of_clients
from fedblade.data.own_files import ReadSettings
from fedblade.data.table_encoding import TableEncoding, encoding_of
from fedblade.data.table_sums import CategorySums, NumberSums, TableSums
from fedblade.flower._sums_options import as_options, in_options
from fedblade.flower._toml_edit import with_agreement, without_block
from fedblade.flower.agreement import Agreement
from fedblade.flower.app import TABLE, check_config, config_text, parse_config
from fedblade.flower.app_folder import CONFIG, AppFolder
from fedblade.flower.sums_file import SumsFile, read_sums_file
from fedblade.results import RunDirectory


@dataclass(frozen=True)
class Agreed:
    """An agreement, lines for the user, and whether the app's configuration has changed."""

    agreement: Agreement
    num_classes: int
    notes: tuple[str, ...]
    changed: bool


def agree(app: AppFolder, paths: Sequence[Path]) -> Agreed:
    """Make the agreement of files of sums, and write it into the app."""
    text = config_text(app)
    tables = parse_config(app, without_block(text))
    given = tables.get(TABLE, {})
    known = given.get("num_classes", 0) if isinstance(given, dict) else 0
    if isinstance(given, dict):
        tables[TABLE] = {**given, "data": "nodes", "num_classes": known or 2}
    config, _ = check_config(app, tables)
    agreement, count, notes = agreement_of(_files(paths, config))
    num_classes = _num_classes(count, agreement, known, renewed=without_block(text) != text)
    new = with_agreement(text, app.path / CONFIG, {"data": "nodes", "num_classes": num_classes}, agreement.table())
    check_config(app, parse_config(app, new))
    if new != text:
        _refuse_unfinished_run(app)
        write_atomic(app.path / CONFIG, new)
    without = sorted({*range(config.federation.num_clients)} - {*agreement.clients})
    return Agreed(agreement, num_classes, (*notes, *_note_on_others(without)), changed=new != text)


def _files(paths: Sequence[Path], config: RunConfig) -> dict[Path, SumsFile]:
    """The files by path in the order of the clients' numbers, each of which fits the app."""
    num_clients, seed = config.federation.num_clients, config.split_seed
    twice = next((path for i, path in enumerate(paths) if path in paths[:i]), None)
    if twice is not None:
        raise Misconfigured(f"'{twice}' is given twice; expected one file for each client. Name it once.")
    files = dict(sorted(((path, read_sums_file(path)) for path in paths), key=lambda item: item[1].client))
    owners: dict[int, Path] = {}
    for path, file in files.items():
        if file.client in owners:
            raise Misconfigured(
                f"'{owners[file.client]}' and '{path}' are both of client {file.client}; expected one file for each "
                f"client. Leave one of them out, or make it anew with another --client."
            )
        owners[file.client] = path
        if file.client >= num_clients:
            raise Misconfigured(
                f"'{path}' is of client {file.client}, and the app has clients 0 to {num_clients - 1} "
                f"(federation.num_clients). Raise federation.num_clients, or make the file anew with another --client."
            )
        if file.seed not in (None, seed):
            raise Misconfigured(
                f"'{path}' leaves out the test samples that seed {file.seed} draws, and the seed of the app is {seed}. "
                f"Make the file anew with --seed {seed}."
            )
    return files


def agreement_of(files: Mapping[Path, SumsFile]) -> tuple[Agreement, int, tuple[str, ...]]:
    """The agreement of all clients, in the order of their numbers; the number of classes, and lines for the user."""
    all_sums = [file.sums for file in files.values()]
    settings = _common_settings(files)
    kinds = {type(file.sums.labels[0]): path for path, file in files.items()}
    if len(kinds) > 1:
        raise Misconfigured(
            f"labels are names in '{kinds[str]}' and numbers in '{kinds[int]}'; expected one kind. Correct the labels, "
            f"or take the numbers as names: --categories with the name of the label column."
        )
    with as_options():
        classes = classes_of_clients(all_sums)
    if classes.count < 2:
        raise Misconfigured("all clients together have one class; expected at least 2. Add files of other clients.")
    encoding, notes = (None, ()) if settings is None else _encoding(files, settings)
    seeds = {file.seed for file in files.values()} - {None}
    agreement = Agreement(
        tuple(file.client for file in files.values()),
        sum(sums.rows for sums in all_sums),
        next(iter(seeds), None),
        classes.values,
        settings,
        encoding,
    )
    return agreement, classes.count, (*notes, *classes.notes)


def _common_settings(files: Mapping[Path, SumsFile]) -> ReadSettings | None:
    """The settings by which all tables were read; None if all clients have arrays."""
    (first, expected), *others = files.items()
    for path, file in others:
        if (file.settings is None) != (expected.settings is None):
            table, arrays = (first, path) if file.settings is None else (path, first)
            raise Misconfigured(
                f"'{table}' is of a table, and '{arrays}' of arrays; expected one kind. Convert one of them."
            )
        if file.settings is None or expected.settings is None:
            continue
        for key in ("label", "missing", "drop", "categories"):
            mine, other = getattr(expected.settings, key), getattr(file.settings, key)
            if _in_any_order(mine) != _in_any_order(other):
                raise Misconfigured(
                    f"'{first}' was made with --{key} {_shown(mine)}, and '{path}' with --{key} {_shown(other)}; "
                    f"expected the same for all clients. Make one of them anew."
                )
    return expected.settings


def _in_any_order(value: str | tuple[str, ...]) -> str | list[str]:
    return value if isinstance(value, str) else sorted(value)


def _shown(value: str | tuple[str, ...]) -> str:
    return repr(value if isinstance(value, str) else ",".join(value))


def _encoding(files: Mapping[Path, SumsFile], settings: ReadSettings) -> tuple[TableEncoding, tuple[str, ...]]:
    total: TableSums | None = None
    for path, file in files.items():
        if file.sums.columns is None:
            continue
        try:
            with as_options():
                total = file.sums.columns if total is None else total.plus(file.sums.columns)
        except Misconfigured as error:
            raise Misconfigured(f"'{path}': {error}") from error
    assert total is not None  # noqa: S101 - there is at least one file, and all of them are of tables
    for name, column in total.columns.items():
        if isinstance(column, NumberSums) and not math.isfinite(column.total + column.squares):
            raise Misconfigured(f"the sums of column '{name}' are too large. Rescale the column, or leave it out.")
        if isinstance(column, CategorySums):
            _check_withheld(name, column, files)
    with as_options():
        encoding, notes = encoding_of(total, fills=settings.missing == "fill")
    return encoding, tuple(map(in_options, notes))


def _check_withheld(name: str, total: CategorySums, files: Mapping[Path, SumsFile]) -> None:
    """Refuse a column whose texts some files list and others hold back, because they all differ there."""
    without = [path for path, file in files.items() if name in file.sums.withheld]
    if not without or total.all_different:
        return
    raise Misconfigured(
        f"column '{name}' has another text in every row of '{without[0]}', so its texts are not in that file; in "
        f"another file some texts repeat. Leave the column out for all clients (--drop {name}), or leave that file "
        f"out: its client may take part without sums, and its own texts then give zeros."
    )


def _num_classes(count: int, agreement: Agreement, known: int, *, renewed: bool) -> int:
    """The number of classes of the app; `known` is the one in its configuration, 0 if there is none.

    If an agreement is `renewed`, the former one may have set the number.
    """
    if agreement.classes is None and known > count:
        return known
    if known in (0, count) or renewed:
        return count
    raise Misconfigured(
        f"flower.num_classes = {known}, and the files have {count} classes. Set flower.num_classes = {count}, or "
        f"correct the labels."
    )


def _note_on_others(clients: Sequence[int]) -> tuple[str, ...]:
    if not clients:
        return ()
    noun = "client" if len(clients) == 1 else "clients"
    shown = listing([str(client) for client in clients[:10]]) + (" and more" if len(clients) > 10 else "")
    return (
        f"{noun} {shown}: no sums; may take part if the columns are the same, and texts of theirs that no other client "
        f"has give zeros",
    )


def _refuse_unfinished_run(app: AppFolder) -> None:
    """Refuse to change the app of a run that has begun and is not finished: its nodes know the present app alone."""
    try:
        last: Any = tomllib.loads(app.last_run.read_text(encoding="utf-8"))
        folder = Path(str(last["run-dir"]))
    except (OSError, ValueError, KeyError):
        return
    directory = RunDirectory(folder)
    if directory.exists and directory.finished_summary() is None:
        raise Misconfigured(
            f"the run in '{folder}' has begun with this app and is not finished, and a run keeps its app. Finish it "
            f"(fedblade flower run … --resume), remove its folder, or make another app: fedblade flower init."
        )
