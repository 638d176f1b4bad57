"""Processes of a federation or of a node: how they are started, found and ended, and how their logs stay small.

Every such process has the folder of the federation or node in its environment, and every process that one of them
starts inherits it. This finds all of them, also processes that Flower detaches, and no process of anybody else, even if
a process id is used again.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from fedblade.core.errors import MissingExtra, RunFailed
from fedblade.flower.app_folder import Place

LOOPBACK = "127.0.0.1"
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1", "[::]": "::1"}  # noqa: S104 - where a server that listens everywhere is asked
MARK = "FEDBLADE_FLOWER"
"""Variable in the environment of every process of a federation or node."""
SUPERVISOR = "fedblade.flower._supervisor"
"""The module that keeps the other processes running."""
PRIVATE_MASK = 0o077
"""The umask of all processes: databases, logs, states and run folders are for their own user alone."""
_FLOWER_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONSAFEPATH": "1",
}
"""Flower sends no statistics, looks for no updates and installs nothing. Python does not import from the current
folder."""
_POLL_SECONDS = 0.05
_VISIBLE_SECONDS = 2.0
_KILL_SECONDS = 5.0
_MAX_PASSES = 5
GRACE_SECONDS = 10.0
"""How long a process may take to end after SIGTERM."""
LARGEST_LOG = 10_000_000
"""Bytes of a log after which it is put aside; one earlier part is kept."""


class ProcessFailed(RunFailed):
    """A process of the local federation did not start or did not end."""


def require_flower() -> None:
    """Raise an error if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtra("flwr", "flower", "deployment with Flower")


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes: its settings, its home, and its commands on the path."""
    path = os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH"))))
    return {**os.environ, **_FLOWER_SETTINGS, "FLWR_HOME": str(home), "PATH": path}


def command(name: str) -> str:
    """Path of one of Flower's commands; the command of this Python installation comes first."""
    here = Path(sysconfig.get_path("scripts")) / name
    path = str(here) if here.is_file() else shutil.which(name)
    if path is None:
        raise MissingExtra("flwr", "flower", f"the command {name}")
    return path


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that are free now; all stay bound until the last is found."""
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind((LOOPBACK, 0))
        return [int(opened.getsockname()[1]) for opened in sockets]


def is_open(port: int, host: str = LOOPBACK) -> bool:
    """Whether a process listens on a port of this machine."""
    try:
        with socket.create_connection((_ANY.get(host, host), port), timeout=1.0):
            return True
    except OSError:
        return False


def start(place: Place, arguments: Sequence[str], log: str, home: Path) -> subprocess.Popen[bytes]:
    """Start a process of the federation; it is detached from this terminal and writes to a log file."""
    place.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(place.logs / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        process = subprocess.Popen(  # noqa: S603 - the arguments come from this package
            list(arguments),
            cwd=place.path,
            env=environment(home) | {MARK: str(place.local)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # The environment of a new process is visible a moment later; until then `running` would not find the process.
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while process.poll() is None and not is_running(place, process.pid) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 10)
    return process


def running(place: Place) -> list[int]:
    """The ids of the processes of a federation that run now, without this process."""
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    ids = [int(folder.name) for folder in folders if int(folder.name) != os.getpid()]
    return [process for process in ids if is_running(place, process)]


def is_running(place: Place, process: int) -> bool:
    """Whether a process runs and belongs to the federation."""
    try:
        variables = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return False
    return f"{MARK}={place.local}".encode() in variables


def is_supervisor(process: int) -> bool:
    """Whether a process keeps others running."""
    try:
        return SUPERVISOR.encode() in (Path("/proc") / str(process) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def memory(process: int) -> int:
    """The bytes of memory that a process has; 0 if it has ended."""
    try:
        pages = int((Path("/proc") / str(process) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def end(place: Place, processes: Sequence[int], grace_seconds: float) -> None:
    """Send SIGTERM to processes of the federation, and SIGKILL to those that still run after a while."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, _KILL_SECONDS)):
        for process in processes:
            if is_running(place, process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
        deadline = time.monotonic() + seconds
        while any(is_running(place, process) for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return


def end_all(place: Place, grace_seconds: float) -> None:
    """End every process of the federation, also processes that one of them starts meanwhile."""
    for _ in range(_MAX_PASSES):
        if not (processes := running(place)):
            return
        end(place, processes, grace_seconds)
    raise ProcessFailed(f"processes {running(place)} of '{place.path}' do not end. End them by hand.")


def rotate_logs(folder: Path, largest: int = LARGEST_LOG) -> None:
    """Put every log above a size aside as `NAME.1`, in place of the part that was put aside before.

    The log is copied and emptied, because a process has it open and goes on appending to it. Lines that are written
    between these two steps are lost.
    """
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > largest:
                aside = log.with_name(f"{log.name}.1")
                aside.unlink(missing_ok=True)
                shutil.copy2(log, aside)
                os.truncate(log, 0)
