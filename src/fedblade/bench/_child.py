"""Measurements in processes of their own: nothing global leaks, and each starts from nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import RunFailed

_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
}
"""Nothing is sent anywhere or installed on the way."""
_MINUTES = 15


def measured_alone(
    module: str, *arguments: str | Path, folder: Path, launcher: Sequence[str] = (), **more: str
) -> Mapping[str, Any]:
    """Run `python -m module folder arguments…` and read the JSON object that it writes to `result.json` in the folder.

    `launcher` goes between Python and `-m`, and `more` into the environment.
    """
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    home = {"FLWR_HOME": str(folder / "flwr")}
    command = [sys.executable, *launcher, "-m", module, str(folder), *map(str, arguments)]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=os.environ | _QUIET | home | more,
            capture_output=True,
            text=True,
            timeout=60 * _MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{module} did not end within {_MINUTES} minutes.") from error
    if done.returncode or not result.is_file():
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RunFailed(f"{module} ended with status {done.returncode}: {lines[-1] if lines else 'no message'}")
    found: Mapping[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def report(folder: Path, **values: Any) -> None:
    """Hand values to the process that asked for them."""
    (folder / "result.json").write_text(json.dumps(values), encoding="utf-8")
