"""Whether a run on disk has the result that the present code and data would give."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.config.run_config import RunConfig
from fedblade.config.schema import NAMED
from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset
from fedblade.results import RunDirectory
from fedblade.runs._revisions import revision_difference
from fedblade.runs._split import named_dataset

_DO_AGAIN = "Choose another --out, or remove the folder to run it again."
_log = logging.getLogger("fedblade.runs")


class ReuseCheck:
    """Compares runs on disk with the present code and data. It reads every data set once.

    `dataset` is a data set from Python. If the data of a run are not on this machine, they are not compared, and a
    warning says so.
    """

    def __init__(self, dataset: Dataset | None = None) -> None:
        self._dataset = dataset
        self._datasets: dict[str, Dataset | None] = {}

    def difference(self, directory: RunDirectory, config: RunConfig) -> str | None:
        """How a run on disk differs from the present code or data, and what to do; None if it does not."""
        return code_difference(directory, config) or self._data_difference(directory, config)

    def check(self, directory: RunDirectory, config: RunConfig) -> None:
        """Refuse a run on disk that differs from the present code or data."""
        difference = self.difference(directory, config)
        if difference:
            raise Misconfigured(difference)

    def _data_difference(self, directory: RunDirectory, config: RunConfig) -> str | None:
        stored = directory.partition_facts() or {}
        dataset = self._present_dataset(config) if "data" in stored else None
        return None if dataset is None else _data_difference(directory, stored, dataset)

    def _present_dataset(self, config: RunConfig) -> Dataset | None:
        if self._dataset is not None:
            return self._dataset
        entry = config.dataset.entry
        # The seed draws the test samples of clients that have none.
        drawn_by = None if entry is None or entry.clients is None else config.split_seed
        key = repr((config.dataset.name, config.dataset.knobs, drawn_by))
        if key not in self._datasets:
            try:
                self._datasets[key] = named_dataset(config)
            except Misconfigured as error:
                self._datasets[key] = None
                _log.warning("runs on disk are reused although their data could not be compared: %s", error)
        return self._datasets[key]


def code_difference(directory: RunDirectory, config: RunConfig) -> str | None:
    """How the code of a run on disk differs from the present code, and what to do; None if it does not.

    Without `partition.json` nothing has been trained in the folder.
    """
    stored = directory.partition_facts()
    if stored is None:
        return None
    for path, digest in sources_of(config).items():
        if stored.get("sources", {}).get(path, digest) != digest:
            return (
                f"the file '{path}' was changed since '{directory.path}' was started. "
                f"Put it back as it was, or choose another --out."
            )
    revision = revision_difference(stored, config)
    if revision is None:
        return None
    return f"'{directory.path}' was started with {revision}, which gives other results. {_DO_AGAIN}"


def check_code(directory: RunDirectory, config: RunConfig) -> None:
    """Refuse to go on with a run that was started with other code."""
    difference = code_difference(directory, config)
    if difference:
        raise Misconfigured(difference)


def check_started(directory: RunDirectory, split: str, dataset: Dataset) -> None:
    """Refuse to go on with other data or another split than the run was started with. `split` is a digest."""
    stored = directory.partition_facts() or {}
    difference = _data_difference(directory, stored, dataset)
    if difference is None and stored.get("digest") != split:
        difference = (
            f"the split of the data differs from what '{directory.path}' was started with. "
            f"Resume with the same data, or choose another --out."
        )
    if difference:
        raise Misconfigured(difference)


def sources_of(config: RunConfig) -> dict[str, str]:
    """SHA-256 of every file that a part comes from by reference (`file.py:name`), and of the file of a split."""
    table = config.table()
    references = [Path(table[kind]["name"].rpartition(":")[0]) for kind in NAMED]
    used = [path for path in references if path.suffix == ".py"]
    split = Path(config.partition.knobs["path"]) if config.partition.name == "file" else None
    # The file of a split may be gone after the run: the run stores the digest of the split too.
    used += [split] if split is not None and split.is_file() else []
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in used}


def _data_difference(directory: RunDirectory, stored: Mapping[str, Any], dataset: Dataset) -> str | None:
    before, now = stored.get("data"), dataset.digest()
    if before == now:
        return None
    pictures = stored.get("pictures") or "not named"
    return (
        f"the data set differs from what '{directory.path}' was started with: then {pictures} ({str(before)[:12]}), "
        f"now {dataset.source} ({now[:12]}). Use the same data, or choose another --out."
    )
