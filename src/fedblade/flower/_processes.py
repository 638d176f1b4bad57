"""Processes of a local federation: how they are started, found and ended.

Every process of a local federation has the federation's folder in its environment, and every process that one of them
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
from fedblade.flower.app_folder import AppFolder

LOOPBACK = "127.0.0.1"
MARK = "FEDBLADE_FLOWER"
"""Variable in the environment of every process of a local federation."""
_FLOWER_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Flower sends no statistics, looks for no updates and installs nothing."""
_POLL_SECONDS = 0.05
_VISIBLE_SECONDS = 2.0
_KILL_SECONDS = 5.0
_MAX_PASSES = 5
GRACE_SECONDS = 10.0
"""How long a process may take to end after SIGTERM."""


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
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def is_open(port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def start(app: AppFolder, arguments: Sequence[str], log: str, home: Path) -> subprocess.Popen[bytes]:
    """Start a process of the local federation; it is detached from this terminal and writes to a log file."""
    app.logs.mkdir(parents=True, exist_ok=True)
    with (app.logs / log).open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 - the arguments come from this package
            list(arguments),
            cwd=app.path,
            env=environment(home) | {MARK: str(app.local)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # The environment of a new process is visible a moment later; until then `running` would not find the process.
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while process.poll() is None and not is_running(app, process.pid) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 10)
    return process


def running(app: AppFolder) -> list[int]:
    """The ids of the processes of a local federation that run now, without this process."""
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    ids = [int(folder.name) for folder in folders if int(folder.name) != os.getpid()]
    return [process for process in ids if is_running(app, process)]


def is_running(app: AppFolder, process: int) -> bool:
    """Whether a process runs and belongs to the local federation."""
    try:
        variables = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return False
    return f"{MARK}={app.local}".encode() in variables


def end(app: AppFolder, processes: Sequence[int], grace_seconds: float) -> None:
    """Send SIGTERM to processes of the local federation, and SIGKILL to those that still run after a while."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, _KILL_SECONDS)):
        for process in processes:
            if is_running(app, process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
        deadline = time.monotonic() + seconds
        while any(is_running(app, process) for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return


def end_all(app: AppFolder, grace_seconds: float) -> None:
    """End every process of the local federation, also processes that one of them starts meanwhile."""
    for _ in range(_MAX_PASSES):
        if not (processes := running(app)):
            return
        end(app, processes, grace_seconds)
    raise ProcessFailed(f"processes {running(app)} of '{app.path}' do not end. End them by hand.")
