"""The comparison of `make demo` as a command, and how long it takes; started by the benchmark `jobs`."""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.fresh_process import write_result
from benchmarks.timing import median
from fedblade.results import SUMMARY, RunDirectory, run_folders

_COMPARISON = ("compare", "--methods", "fedavg,fedetf,fedblade", "--threshold", "90", "--quiet")


def main(folder: Path, jobs: str, *options: str) -> None:
    """Run the comparison with `--jobs jobs` and further options; imports, data, table and report count too."""
    study = folder / f"jobs-{jobs}"
    command = [sys.executable, "-m", "fedblade", *_COMPARISON, *options, "--jobs", jobs, "--out", str(study)]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    summaries = [RunDirectory(run).read_json(SUMMARY) or {} for run in run_folders(study)]
    accuracy = median([summary["final_accuracy"] for summary in summaries])
    write_result(folder, seconds=seconds, runs=len(summaries), accuracy=accuracy)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
