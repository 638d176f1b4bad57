"""Makes a run folder whole at the end of a run, whatever was done to its files while the run was writing to it."""

from collections.abc import Iterator

from torch import nn

from fedblade.results import CLIENTS, CONFIG, DIAGNOSTICS, HISTORY, METRICS, PARTITION, RunDirectory
from fedblade.runs._driver import Driver
from fedblade.runs._setup import Setup
from fedblade.runs._summary import partition_record


def complete(directory: RunDirectory, setup: Setup, model: nn.Module | None, driver: Driver) -> Iterator[str]:
    """Write again what was changed or lost, except for lines of diagnostics, which nobody has any more.

    Yields notes for the user. A `config.toml` that can be read stays as the user has edited it.
    """
    for name in (HISTORY, DIAGNOSTICS, CLIENTS):
        yield from directory.mend(name, None if name == CLIENTS else driver.state.round)
    directory.rewrite(HISTORY, driver.history)
    directory.rewrite(CLIENTS, driver.clients)
    if directory.needs_writing(PARTITION):
        directory.write_json(PARTITION, partition_record(setup, model))
        yield f"'{directory.path / PARTITION}' was changed or lost, and is made again."
    if directory.needs_writing(METRICS):
        write_descriptions(directory, setup)
        yield f"'{directory.path / METRICS}' was changed or lost, and is made again."
    if directory.config_table() is None:
        directory.write(CONFIG, setup.config.to_toml())
        yield f"'{directory.path / CONFIG}' was damaged or lost, and is made again."


def write_descriptions(directory: RunDirectory, setup: Setup) -> None:
    """Store what the numbers of the run's metrics mean."""
    directory.write_fields(described for metric in setup.metrics for described in metric.fields)
