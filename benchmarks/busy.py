"""A process that keeps all cores busy while something else is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.fresh_process import CHECKOUT
from fedblade.core.errors import RunFailed


@contextmanager
def busy_process() -> Iterator[int]:
    """In this block another process, whose number is given, multiplies matrices on all cores.

    It ends with the block. If this process is killed, the pipe to the other one breaks, which ends it too.
    """
    command = [sys.executable, "-m", "benchmarks.processes.busy"]
    # No setting that calms this process' threads may calm the other one's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_"))}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=CHECKOUT, env=environment
    )
    try:
        if process.stdout is None or not process.stdout.readline():
            raise RunFailed(f"{' '.join(command)} ended with status {process.wait()} before it was busy.")
        yield process.pid
    finally:
        process.kill()
        process.communicate()
