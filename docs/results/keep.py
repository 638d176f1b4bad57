"""Keep what a page needs of finished runs: `python keep.py CELLS INTO`.

CELLS is a folder of run folders, as `fedblade reproduce --out DIR` makes them in DIR/cells. Each finished run gets a
folder in INTO, with `config.toml`, `summary.json`, `partition.json` without its table and the numbers of
`history.jsonl` that a page can need, so that `fedblade report` reads it. INTO/splits has the whole record of every
split once, named by the split's digest.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from fedblade.results import CONFIG, HISTORY, PARTITION, SUMMARY, RunDirectory, read_object

DIGITS = 6
"""Significant digits of a kept number: more than any page prints."""
LEFT_OUT = ("bytes_up", "bytes_down", "lr", "seconds", "wall_seconds")
"""Numbers of a round that are the same in every round, or of the machine."""


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a round that are single numbers, shortened; events that were counted only if there were any."""
    single = {name: value for name, value in row.items() if isinstance(value, int | float) and name not in LEFT_OUT}
    kept = {name: value for name, value in single.items() if value or not name.startswith("count_")}
    return {name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for name, value in kept.items()}


def keep(run: Path, into: Path) -> None:
    """Copy the small files of one run."""
    target = into / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, SUMMARY):
        if (run / name).is_file():
            shutil.copyfile(run / name, target / name)
    lines = "".join(json.dumps(numbers(row)) + "\n" for row in RunDirectory(run).history())
    (target / HISTORY).write_text(lines, encoding="utf-8")
    split = read_object(run / PARTITION)
    (target / PARTITION).write_text(json.dumps(split | {"counts": None}) + "\n", encoding="utf-8")
    splits = into / "splits"
    splits.mkdir(exist_ok=True)
    (splits / f"{split['digest'][:16]}.json").write_text(json.dumps(split) + "\n", encoding="utf-8")


def main(cells: Path, into: Path) -> None:
    """Keep every finished run below `cells`."""
    runs = sorted(path.parent for path in cells.glob(f"*/{SUMMARY}"))
    finished = [run for run in runs if RunDirectory(run).finished_summary() is not None]
    if not finished:
        sys.exit(f"'{cells}' holds no finished run; expected folders with a summary.json, as in DIR/cells.")
    for run in finished:
        keep(run, into)
        print(f"kept {run.name}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
