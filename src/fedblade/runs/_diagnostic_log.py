"""Keeps what metrics measured beside single numbers, round by round."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.listener import RoundRecord
from fedblade.results import DIAGNOSTICS, RunDirectory


class DiagnosticLog:
    """One record per round in which a metric gave more than single numbers.

    A run folder holds the records in `diagnostics.jsonl`, and none stays in memory. Without a folder they are kept in
    memory as compressed text, which takes a tenth of the memory of Python's lists.
    """

    def __init__(self, directory: RunDirectory | None) -> None:
        self._directory = directory
        self._compressed: list[bytes] = []
        self._is_written = False

    def append(self, round_: int, lists: Mapping[str, Any]) -> None:
        """Keep the lists of a round, in which None stands for NaN and infinities; no lists are no record."""
        if not lists:
            return
        line = json.dumps({"round": round_, **lists}, allow_nan=False)
        if self._directory is None:
            self._compressed.append(zlib.compress(line.encode(), level=1))
        else:
            self._directory.append_line(DIAGNOSTICS, round_, line)
            self._is_written = True

    def records(self) -> list[RoundRecord]:
        """All records, those from before a resumption included."""
        if self._directory is None:
            return [json.loads(zlib.decompress(line)) for line in self._compressed]
        path = self._directory.path / DIAGNOSTICS
        if not path.is_file() and (self._is_written or not self._directory.exists):
            raise CorruptFile(
                f"'{path}' with the diagnostics of the run is gone. Put it back, or read Result.diagnostics before the "
                f"folder is removed."
            )
        return self._directory.records(DIAGNOSTICS)
