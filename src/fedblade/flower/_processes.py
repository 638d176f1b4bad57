"""Processes of a rehearsal: how they are started, found again and ended.

Every process of a rehearsal has the folder of the rehearsal in its environment, and so has every process that one of
them starts. That finds them all, those that Flower detaches too, and no other process, whatever process ids say.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from fedblade.core.errors import MissingExtra, RunFailed
from fedblade.flower._place import Place

MARK = "FEDBLADE_FLOWER"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Flower reports nothing, asks for nothing and installs nothing."""
_LOOK_SECONDS, _SHOWN_SECONDS = 0.05, 2.0
_MOST_PASSES = 5
GRACE_SECONDS = 10.0
"""How long a process that was asked to end may take."""


class ProcessFailed(RunFailed):
    """A process of the rehearsal did not do what it was started for; its log says more."""


def require_flower() -> None:
    """Refuse to go on without Flower."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtra("flwr", "flower", "deployment with Flower")


def environment(home: Path) -> dict[str, str]:
    """What Flower's processes find in their environment: its settings, its home, and its commands on the path."""
    path = os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH"))))
    return {**os.environ, **_QUIET, "FLWR_HOME": str(home), "PATH": path}


def command(name: str) -> str:
    """Path of one of Flower's commands, that of this Python if it has one."""
    here = Path(sysconfig.get_path("scripts")) / name
    found = str(here) if here.is_file() else shutil.which(name)
    if found is None:
        raise MissingExtra("flwr", "flower", f"the command {name}")
    return found


def start(place: Place, arguments: Sequence[str], log: str, home: Path) -> subprocess.Popen[bytes]:
    """Start a process of the rehearsal, apart from this terminal, that writes to a log of its own."""
    place.logs.mkdir(parents=True, exist_ok=True)
    with (place.logs / log).open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 - arguments are ours
            list(arguments),
            cwd=place.folder,
            env=environment(home) | {MARK: str(place.own)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # A process that has just been made shows its environment a moment later; until then nobody would know it for ours.
    deadline = time.monotonic() + _SHOWN_SECONDS
    while process.poll() is None and not is_running(place, process.pid) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS / 10)
    return process


def start_python(place: Place, module: str, log: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module of ours as a process of the rehearsal."""
    return start(place, [sys.executable, "-m", module, *arguments], log, place.home)


def running(place: Place) -> list[int]:
    """The processes of a rehearsal that run now, besides this one."""
    mark = f"{MARK}={place.own}".encode()
    others = [each for each in Path("/proc").iterdir() if each.name.isdigit() and int(each.name) != os.getpid()]
    return [int(each.name) for each in others if mark in _environment_of(each)]


def is_running(place: Place, process: int) -> bool:
    """Whether a process runs and is one of the rehearsal's."""
    return f"{MARK}={place.own}".encode() in _environment_of(Path("/proc") / str(process))


def end(place: Place, processes: Sequence[int], grace_seconds: float) -> None:
    """Ask processes of the rehearsal to end, and end those that still run after a while."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        for process in processes:
            _send(place, process, number)
        deadline = time.monotonic() + seconds
        while any(is_running(place, process) for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        else:
            return


def end_all(place: Place, grace_seconds: float) -> None:
    """End every process of the rehearsal, those included that one of them starts meanwhile."""
    for _ in range(_MOST_PASSES):
        if not (processes := running(place)):
            return
        end(place, processes, grace_seconds)
    raise ProcessFailed(f"processes {running(place)} of '{place.folder}' do not end. End them by hand.")


def _send(place: Place, process: int, number: signal.Signals) -> None:
    if is_running(place, process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _environment_of(folder: Path) -> list[bytes]:
    """The environment a process was started with; empty for one that is gone, ended or another user's."""
    try:
        return (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
