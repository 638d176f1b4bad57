"""Merge files of `fedblade bench --json` into one Markdown table: `python -m benchmarks.markdown FILE.json…`.

Where several files hold the same case, a measured row wins over a skipped row, and a later file over an earlier one.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.table import PlainRow, as_markdown, machine_and_versions


def merged(files: Iterable[Path]) -> list[PlainRow]:
    """The rows of all files, one per case."""
    rows: dict[tuple[str, str], PlainRow] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8")):
            key = (row["name"], row["case"])
            if key not in rows or row["value"] is not None:
                rows[key] = row
    return list(rows.values())


def document(rows: list[PlainRow]) -> str:
    """The table, and the machines that measured it."""
    machines = dict.fromkeys(machine_and_versions(row) for row in rows if row["value"] is not None)
    return "\n".join([as_markdown(rows), "", *(f"- {machine}" for machine in machines)])


if __name__ == "__main__":
    print(document(merged(map(Path, sys.argv[1:]))))
