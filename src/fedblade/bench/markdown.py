"""Merge files of `fedblade bench --json` into one Markdown table: `python -m fedblade.bench.markdown FILE.json…`.

Where several files hold the same row, a measured one wins over a skipped one, and a later file over an earlier one.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedblade.bench._render import as_markdown, facts


def merged(files: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of all files, each once."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8")):
            key = (row["name"], row["case"])
            if key not in rows or row["value"] is not None:
                rows[key] = row
    return list(rows.values())


def document(rows: list[dict[str, Any]]) -> str:
    """The table, and the machines it was measured on."""
    machines = dict.fromkeys(facts(row) for row in rows if row["value"] is not None)
    return "\n".join([as_markdown(rows), "", *(f"- {machine}" for machine in machines)])


if __name__ == "__main__":
    print(document(merged(map(Path, sys.argv[1:]))))
