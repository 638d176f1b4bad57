"""Whether a run on disk is the run that would be made today: its parts' revisions, the user's files and the data."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.config.run_config import RunConfig
from fedblade.config.schema import NAMED
from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset, as_dataset
from fedblade.results import PARTITION, RunDirectory
from fedblade.runs._revisions import revision_difference

_AGAIN = "Choose another --out, or remove the folder to run it again."
_log = logging.getLogger("fedblade.runs")


class Today:
    """Compares runs on disk with today's code and data; each data set is read once.

    `given` is the data set that was passed from Python, if one was. A run whose data are not on this machine now still
    counts, and one line says that its data could not be compared.
    """

    def __init__(self, given: Dataset | None = None) -> None:
        self._given = given
        self._datasets: dict[str, Dataset | None] = {}

    def difference(self, directory: RunDirectory, config: RunConfig) -> str | None:
        """In which way a run on disk is not today's, as a sentence that says what to do; None where it is."""
        return code_difference(directory, config) or self._data_difference(directory, config)

    def check(self, directory: RunDirectory, config: RunConfig) -> None:
        """Refuse a run on disk that is not today's."""
        found = self.difference(directory, config)
        if found:
            raise Misconfigured(found)

    def _data_difference(self, directory: RunDirectory, config: RunConfig) -> str | None:
        stored = directory.read_json(PARTITION) or {}
        dataset = self._dataset(config) if "data" in stored else None
        return None if dataset is None else _data_difference(directory, stored, dataset)

    def _dataset(self, config: RunConfig) -> Dataset | None:
        if self._given is not None:
            return self._given
        key = repr((config.dataset.name, config.dataset.knobs))
        if key not in self._datasets:
            try:
                self._datasets[key] = as_dataset(config.dataset.make())
            except Misconfigured as error:
                self._datasets[key] = None
                _log.warning("runs on disk count although their data could not be compared with today's: %s", error)
        return self._datasets[key]


def code_difference(directory: RunDirectory, config: RunConfig) -> str | None:
    """In which way a run on disk was made by other code than today's, as a sentence; None where it was not.

    A folder without `partition.json` has not been trained in.
    """
    stored = directory.read_json(PARTITION)
    if stored is None:
        return None
    for path, digest in sources_of(config).items():
        if stored.get("sources", {}).get(path, digest) != digest:
            return (
                f"the file '{path}' was changed since '{directory.path}' was started. "
                f"Put it back as it was, or choose another --out."
            )
    found = revision_difference(stored, config)
    return f"'{directory.path}' was started with {found}, which gives other results. {_AGAIN}" if found else None


def check_code(directory: RunDirectory, config: RunConfig) -> None:
    """Refuse to go on with a run that was started with other code."""
    found = code_difference(directory, config)
    if found:
        raise Misconfigured(found)


def check_started(directory: RunDirectory, split: str, dataset: Dataset) -> None:
    """Refuse to go on with data or a split, told by its digest, other than those that a run was started with."""
    stored = directory.read_json(PARTITION) or {}
    found = _data_difference(directory, stored, dataset)
    if found is None and stored.get("digest") != split:
        found = (
            f"the split of the data differs from what '{directory.path}' was started with. "
            f"Resume with the same data, or choose another --out."
        )
    if found:
        raise Misconfigured(found)


def sources_of(config: RunConfig) -> dict[str, str]:
    """SHA-256 of every file that a part is taken from by reference, `file.py:name`, and of a split that is a file."""
    table = config.table()
    places = [Path(table[kind]["name"].rpartition(":")[0]) for kind in NAMED]
    used = [path for path in places if path.suffix == ".py"]
    split = Path(config.partition.knobs["path"]) if config.partition.name == "file" else None
    # The file of a finished run's split may be gone: what it said is in the run's digest of the split.
    used += [split] if split is not None and split.is_file() else []
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in used}


def _data_difference(directory: RunDirectory, stored: Mapping[str, Any], dataset: Dataset) -> str | None:
    then, now = stored.get("data"), dataset.digest()
    if then == now:
        return None
    pictures = stored.get("pictures") or "not named"
    return (
        f"the data set differs from what '{directory.path}' was started with: then {pictures} ({str(then)[:12]}), "
        f"now {dataset.source} ({now[:12]}). Use the same data, or choose another --out."
    )
