"""Measurements in fresh processes: no side inherits threads, caches or memory from another."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import RunFailed

CHECKOUT = Path(__file__).parents[1]
"""The folder that holds `benchmarks`; processes and the processes that they start import the package from there."""
RESULT = "result.json"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
}
"""Frameworks send nothing and install nothing while they are measured."""
_MINUTES = 10
"""No benchmark takes longer, so no process does."""


def measure_in_fresh_process(
    program: str, *arguments: str, folder: Path, launcher: Sequence[str] = (), **environment: str
) -> Mapping[str, Any]:
    """Run the module `program` with the folder and the arguments, and read the numbers that it writes.

    `launcher` goes between Python and `-m program`, for programs that another module starts (torchrun).
    """
    result = folder / RESULT
    result.unlink(missing_ok=True)
    search_path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    found_by_children = {"PYTHONPATH": search_path, "FLWR_HOME": str(folder / "flwr")}
    try:
        done = subprocess.run(
            [sys.executable, *launcher, "-m", program, str(folder), *arguments],
            env=os.environ | _QUIET | found_by_children | environment,
            capture_output=True,
            text=True,
            timeout=60 * _MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{program} did not end within {_MINUTES} minutes.") from error
    if done.returncode or not result.is_file():
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RunFailed(f"{program} ended with status {done.returncode}: {lines[-1] if lines else 'no message'}")
    numbers: Mapping[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return numbers


def write_result(folder: Path, **numbers: Any) -> None:
    """Hand numbers to the process that started this one."""
    (folder / RESULT).write_text(json.dumps(numbers), encoding="utf-8")
