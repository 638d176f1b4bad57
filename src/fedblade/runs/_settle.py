"""Settles what a run folder holds: before the first round of a run, and after the last one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import tomli_w
from torch import nn

from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.results import (
    CLIENTS,
    CONFIG,
    DIAGNOSTICS,
    HISTORY,
    MODEL,
    PARTITION,
    RECORD,
    SUMMARY,
    FolderRecord,
    RunDirectory,
    file_digest,
)
from fedblade.runs._changes import ROUNDS, Change, changed_table, run_digest
from fedblade.runs._checkpoints import Checkpoints
from fedblade.runs._driver import Driver
from fedblade.runs._ending import STOPPED, standing_stop
from fedblade.runs._reuse import check_started
from fedblade.runs._setup import Setup
from fedblade.runs._summary import code_facts, partition_record


def settle(directory: RunDirectory, setup: Setup, model: nn.Module | None, changes: Sequence[Change]) -> Iterator[str]:
    """Make the open folder that of the run: record what may not change, mend what can be mended, write the changes.

    Yields notes for the user. Files of another run, and files that nobody can mend, are refused.
    """
    if changed := directory.changed_files():
        yield f"changed or lost since the run had finished: {', '.join(changed)}. What can be made again is made again."
    facts = _fixed_facts(setup)
    if not directory.exists:
        directory.write(CONFIG, setup.config.to_toml())
    stored = directory.stored_config()
    record, found = directory.record, Counter(Checkpoints(directory).runs())
    if found and Checkpoints(directory).record() is None:
        record = _mended_record(directory, record, run_digest(stored, facts), stored, found)
        yield f"'{directory.path / RECORD}' did not fit the checkpoints, and is made again."
    record = record or FolderRecord(run_digest(stored, facts), stored, unmarked=Checkpoints(directory).newest)
    yield from _settle_partition(directory, setup, model, record, facts)
    if any(change.key == ROUNDS for change in changes) or _goes_on_after_stop(directory, setup):
        yield from _put_former_result_aside(directory, record)
    marks = [{"round": directory.rounds_on_record(), **asdict(change)} for change in changes if change.is_seen]
    if marks:
        yield f"going on with {', '.join(str(change) for change in changes if change.is_seen)}."
    table, partition = changed_table(record.config, changes), file_digest(directory.path / PARTITION) or ""
    directory.begin(replace(record, config=table, partition=partition, changes=[*record.changes, *marks], digests={}))
    if not directory.has_config and CONFIG not in changed:
        yield f"'{directory.path / CONFIG}' was changed or lost, and is made again."
    directory.write_if_new(CONFIG, tomli_w.dumps(table))


def put_right(directory: RunDirectory, setup: Setup, driver: Driver, model: nn.Module | None) -> Iterator[str]:
    """Write again what other programs have changed or removed while the run went on; yields notes for the user.

    The run knows all but the lists of diagnostics, of which lines that were changed are left out. A configuration that
    the user has edited stays: it counts when the run is resumed.
    """
    for name, records in ((HISTORY, driver.history), (CLIENTS, driver.clients)):
        if directory.keep_records(name, records):
            yield _written_again(directory, name)
    if not directory.is_as_written(DIAGNOSTICS):
        yield from directory.mend(DIAGNOSTICS, driver.state.round)
    if directory.partition_facts() is None:
        directory.write_json(PARTITION, partition_record(setup, model))
        yield _written_again(directory, PARTITION)
    if not directory.has_config and directory.record is not None:
        directory.write(CONFIG, tomli_w.dumps(dict(directory.record.config)))
        yield _written_again(directory, CONFIG)
    write_descriptions(directory, setup)


def write_descriptions(directory: RunDirectory, setup: Setup) -> None:
    """Store what the numbers of the run's metrics mean."""
    directory.write_fields(described for metric in setup.metrics for described in metric.fields)


def _goes_on_after_stop(directory: RunDirectory, setup: Setup) -> bool:
    """Whether a run that had ended before its last round has more rounds to do."""
    summary = directory.finished_summary()
    return summary is not None and STOPPED in summary and standing_stop(directory.history(), setup.config) is None


def _put_former_result_aside(directory: RunDirectory, record: FolderRecord) -> Iterator[str]:
    """Keep the result of the former number of rounds, and let no record of a personal model count for the new one."""
    directory.copy_lines_of(record.run, record.rounds)
    if any((directory.path / name).is_file() for name in (CLIENTS, MODEL)):
        yield f"the result so far is kept in '{directory.set_aside((CLIENTS, MODEL, SUMMARY))}'."
    directory.rewrite(CLIENTS, [])


def _fixed_facts(setup: Setup) -> dict[str, Any]:
    """What may not change in a run beside its settings: the data, the split and the code of its parts."""
    digests = {"data": setup.dataset.digest(), "split": setup.clients.train.digest()}
    return digests | code_facts(setup)


def _mended_record(
    directory: RunDirectory, record: FolderRecord | None, run: str, stored: dict[str, Any], found: "Counter[str]"
) -> FolderRecord:
    """A record that fits the checkpoints, if the configuration, the data and the code are those of the checkpoints.

    `run` is their digest. If they are not, a record that is whole stays: the checkpoints are then refused one by one.
    """
    if run in found:
        return FolderRecord(run, stored)
    if record is not None:
        return record
    raise CorruptFile(
        f"'{directory.path / RECORD}' is gone or damaged, and the checkpoints were saved with another configuration "
        f"than {CONFIG} has now, or with other data or code. Put the folder back as it was, or start again from round "
        f"0 with --restart."
    )


def _settle_partition(
    directory: RunDirectory, setup: Setup, model: nn.Module | None, record: FolderRecord, facts: dict[str, Any]
) -> Iterator[str]:
    """Check that the run goes on with its data, split and code, or write `partition.json` if it is not whole."""
    if directory.partition_facts() is not None:
        check_started(directory, facts["split"], setup.dataset)
        return
    if record.partition:
        if run_digest(record.config, facts) != record.run:
            raise Misconfigured(
                f"'{directory.path / PARTITION}' is gone or damaged, and the data, their split or the code are not "
                f"those of the run. Go on with the same ones, put the file back as it was, or choose another --out."
            )
        yield f"'{directory.path / PARTITION}' was changed or lost, and is made again."
    directory.write_json(PARTITION, partition_record(setup, model))


def _written_again(directory: RunDirectory, name: str) -> str:
    return f"'{directory.path / name}' was changed or removed while the run went on, and is written again."
