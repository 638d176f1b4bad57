"""The loop of an executor: a process of ours that carries out Flower's tasks, one after the other.

An executor never unpacks an app. It compares the bytes of the app with a pinned digest, and then calls the installed
library. A person who can start a run can therefore not bring code with it.
"""

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.flower._flwr_internals import tasks as flower
from fedblade.flower.digests import digest_of

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


def carry_out_tasks(
    runtime: flower.Runtime, secret: Path, kind: flower.Kind, do: Callable[[flower.Task], None]
) -> None:
    """Acquire tasks of one type and do them, until this process is ended."""
    client = runtime.acquirer(secret.read_bytes())
    pause = _SHORTEST_PAUSE
    while True:
        task = flower.acquire(client, kind)
        if task is not None:
            pause = _SHORTEST_PAUSE
            do(task)
            continue
        time.sleep(pause)
        pause = min(pause * 1.2, _LONGEST_PAUSE)


def check_app(fab: bytes, pin: str) -> None:
    """Refuse an app that is not the pinned one."""
    found = digest_of(fab)
    if found != pin:
        raise Misconfigured(
            f"the app of this run has the digest {found}, and only the app with the digest {pin} may run here. The app "
            f"was not unpacked. If it is the right app, pin it: 'fedblade flower digest APP' prints its digest."
        )


def begin_process() -> None:
    """Write log lines to the output of this process, and let SIGINT interrupt it even if a shell had it ignored."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.default_int_handler)
