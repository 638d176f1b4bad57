"""A run without a folder as a `RunRecord`, so that tables and pages treat it as a run on disk."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.fields import Field
from fedblade.hardness import Hardness
from fedblade.results._fields import descriptions, read_descriptions
from fedblade.results._file_names import PARTITION
from fedblade.results._read import by_round, read_partition, round_of
from fedblade.results._record import RunRecord

NOWHERE = Path("in memory")
"""Stands for the folder of a run that has none."""


def record_in_memory(
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    partition: Mapping[str, Any],
    fields: Iterable[Field],
    *,
    history: Sequence[Mapping[str, Any]],
    diagnostics: Sequence[Mapping[str, Any]] = (),
    clients: Sequence[Mapping[str, Any]] = (),
) -> RunRecord:
    """A run from what the files of its folder would hold; `partition` is the contents of `partition.json`."""
    files: dict[str, Any] = {"summary": summary, "partition": partition, "fields": descriptions(fields)}
    files |= {"history": list(history), "diagnostics": list(diagnostics), "clients": list(clients)}
    stored = json.loads(json.dumps(files))  # values have the types that they would have after reading
    split = stored["partition"]
    return RunRecord(
        path=NOWHERE,
        config=config,
        summary=stored["summary"],
        history=tuple(round_of(index, entry) for index, entry in by_round(stored["history"]).items()),
        partition=read_partition(split, Path(PARTITION)),
        diagnostics=by_round(stored["diagnostics"]),
        clients=tuple(stored["clients"]),
        pictures=str(split.get("pictures") or ""),
        stored_hardness=Hardness.restored(split.get("hardness")),
        stored_fields=read_descriptions(stored["fields"])[0],
    )
