"""The estimate of a run as a dry run makes it, or the run itself; started by `estimate`."""

import sys
import time
from pathlib import Path

from benchmarks.fresh_process import write_result
from fedblade.config.overrides import parse_assignment
from fedblade.runs import execute, load_config
from fedblade.studies import estimate_cost


def main(folder: Path, side: str, assignments: list[str]) -> None:
    """Write the seconds that the run takes, as estimated or as measured."""
    config = load_config("quickstart", dict(parse_assignment(assignment) for assignment in assignments))[0]
    if side == "estimate":
        write_result(folder, seconds=estimate_cost([(config, 0)]).seconds)
        return
    began = time.perf_counter()
    execute(config, out=folder / "run")
    write_result(folder, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
