"""Puts right what other programs have changed in a run folder while its run went on."""

from collections.abc import Iterator

import tomli_w
from torch import nn

from fedblade.results import CLIENTS, CONFIG, DIAGNOSTICS, HISTORY, PARTITION, RunDirectory
from fedblade.runs._driver import Driver
from fedblade.runs._setup import Setup
from fedblade.runs._summary import partition_record


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


def _written_again(directory: RunDirectory, name: str) -> str:
    return f"'{directory.path / name}' was changed or removed while the run went on, and is written again."
