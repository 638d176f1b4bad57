"""The names of the files in a run folder, and where run folders are."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

CONFIG, HISTORY, SUMMARY, PARTITION = "config.toml", "history.jsonl", "summary.json", "partition.json"
CLIENTS, MODEL, CHECKPOINTS, LOCK = "clients.jsonl", "model.safetensors", "checkpoints", ".lock"
DIAGNOSTICS, METRICS = "diagnostics.jsonl", "metrics.json"
RECORD = "folder.json"
"""What the folder says of itself: its format, its run, and the digests of its files; see `FolderRecord`."""
JOURNAL = f"{CHECKPOINTS}/journal.jsonl"
"""A second copy of the lines of the run; see `Journal`."""
DEPLOYMENT, EVENTS = "deployment.json", "deployment.jsonl"
"""Only deployed runs have these: how nodes recognise the run, and what happened to the nodes."""
RECORD_FILES = (CONFIG, METRICS, PARTITION, HISTORY, DIAGNOSTICS, CLIENTS, SUMMARY)
"""The files that the record of a run is read from."""
FORMER = "former-"
"""The start of the names of folders that hold what was in a run folder before it was started again."""


def run_folders(path: Path) -> Iterator[Path]:
    """The run folders at or below `path`, in order; what lies below a run belongs to the run."""
    for folder, below, files in os.walk(path):
        if _holds_run(files):
            below.clear()
            yield Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("."))


def _holds_run(files: Sequence[str]) -> bool:
    """A history makes a run; so does a configuration beside what a run writes before its first round."""
    return HISTORY in files or ((CONFIG in files or RECORD in files) and (PARTITION in files or SUMMARY in files))
