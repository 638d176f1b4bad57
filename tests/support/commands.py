"""Commands of `fedblade` in processes that are forked from a warmed one."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

_SCRIPT = Path(__file__).parent / "zygote.py"
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
_LIMIT = 120.0
"""Seconds after which a command that hangs is ended."""


def plain_environment() -> dict[str, str]:
    """The surrounding environment without what would colour or widen the output."""
    dropped = ("FORCE_COLOR", "NO_COLOR", "TERM", "PYTHONPATH", "PYTHONWARNINGS")
    return {key: value for key, value in os.environ.items() if key not in dropped} | _ENVIRONMENT


@dataclass
class Command:
    """A command that was started. Only one command at a time goes on."""

    pid: int
    stdout: Path
    stderr: Path
    _process: "subprocess.Popen[str]"
    _status: int | None = None

    def has_ended(self) -> bool:
        """Whether the command has ended by itself."""
        assert self._process.stdout is not None
        return self._status is not None or bool(select.select([self._process.stdout], [], [], 0)[0])

    def stop(self, number: int) -> None:
        """Send a signal if the command still goes on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the end; returns the exit status, or the negative number of the signal that ended the command."""
        if self._status is None:
            timer = Timer(_LIMIT, os.kill, (self.pid, signal.SIGKILL))
            timer.start()
            assert self._process.stdout is not None
            self._status = int(self._process.stdout.readline())
            timer.cancel()
        return self._status


class Zygote:
    """A process with torch and the library loaded, which forks one child per command."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=plain_environment(),
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self, argv: Sequence[object], place: Path, stdout: Path, stderr: Path, env: Mapping[str, str]) -> Command:
        """Start `fedblade` with these arguments in a folder, with files for its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        streams = {"stdout": str(stdout), "stderr": str(stderr)}
        request = {"argv": [str(each) for each in argv], "cwd": str(place), "env": dict(env), **streams}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Command(int(self._process.stdout.readline()), stdout, stderr, self._process)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=_LIMIT)
        self._process.stdout.close()
