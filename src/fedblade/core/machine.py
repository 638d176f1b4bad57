"""What this machine has for processes: cores, free memory, and how much memory this process has used."""

import os
import sys
from pathlib import Path

_STATUS, _MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")
_GROUPS = Path("/sys/fs/cgroup")


_NO_MEMORY = ("can't allocate memory", "not enough memory", "could not create a memory", "std::bad_alloc")
"""Parts of the messages of torch when memory ran out on a CPU; torch has no type for this error."""


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error says that the machine's memory ran out. The memory of a GPU has an error type of torch."""
    if isinstance(error, RuntimeError):
        return any(phrase in str(error) for phrase in _NO_MEMORY)
    return isinstance(error, MemoryError)


def cores() -> int:
    """Cores that this process may use, or fewer if its container grants less time than these cores have."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _content(_GROUPS / "cpu.max").partition(" ")
    return max(1, min(usable, int(quota) // int(period))) if quota.isdecimal() else usable


def free_memory() -> int | None:
    """Bytes that new processes can use without swapping; None if the system does not say."""
    free = _kibibytes(_MEMORY, "MemAvailable:")
    limit, used = (_content(_GROUPS / name) for name in ("memory.max", "memory.current"))
    if limit.isdecimal() and used.isdecimal():
        # A container's own limit counts too. Its cached files can be dropped.
        cached = int(dict(map(str.split, _content(_GROUPS / "memory.stat").splitlines())).get("inactive_file", 0))
        in_group = max(0, int(limit) - int(used) + cached)
        return in_group if free is None else min(free, in_group)
    return free


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None if the system does not say.

    On Linux the process status has it; `getrusage` would also count the process that this one was forked from.
    """
    peak = _kibibytes(_STATUS, "VmHWM:")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _content(path: Path) -> str:
    """The text of a file of the system; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _kibibytes(path: Path, key: str) -> int | None:
    """A number in kibibytes, in bytes, from a file of lines such as `MemAvailable: 100 kB`."""
    lines = (line.split() for line in _content(path).splitlines())
    return next((int(words[1]) * 1024 for words in lines if words and words[0] == key), None)
