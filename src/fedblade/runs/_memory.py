"""Memory of a run: the process keeps freed blocks on a CPU, and an error says what to do if there is too little.

The activations of a stacked step take some megabytes each. By default glibc returns blocks of this size to the system
and asks for new ones in the next layer. The page faults cost a third of the time of a small network. Without glibc
nothing is changed.
"""

import contextlib
import ctypes
from collections.abc import Iterator

import torch

from fedblade.core.errors import RunFailed
from fedblade.core.machine import free_memory, memory_ran_out

_TRIM, _TOP_PAD, _MMAP, _MOST_MMAPS = -1, -2, -3, -4
_MEGABYTE = 2**20
_GO_ON = "then go on with --resume, or start again where a setting was changed."


def keep_freed_memory(*, of_any_size: bool = False) -> bool:
    """Raise the thresholds of glibc's allocator for the rest of the process; True if the process uses glibc.

    Blocks of 32 MB and more are kept only if freed memory `of_any_size` is: free memory between such blocks cannot be
    returned to the system.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # glibc accepts at most 32 MB for the first option.
    wanted = [(_MMAP, 32 * _MEGABYTE), (_TRIM, 256 * _MEGABYTE), (_TOP_PAD, 16 * _MEGABYTE)]
    wanted += [(_MOST_MMAPS, 0)] if of_any_size else []
    taken = [set_option(option, size) for option, size in wanted]
    return all(taken)


@contextlib.contextmanager
def explained_out_of_memory() -> Iterator[None]:
    """Raise an error that says what to do if the memory is too small, that of a GPU or that of the machine."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RunFailed(
            f"the GPU's memory is too small{_gpu_text()}, although the run trained only one client or measured only "
            f"one batch at a time. End other processes that use the GPU, lower local.batch_size or set autocast=bf16; "
            f"{_GO_ON}"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        raise RunFailed(
            f"the machine's memory is too small{_machine_text()}: {_first_line(error)}. End other processes, set "
            f"engine=sequential, which trains one client at a time, or lower local.batch_size or the size of the "
            f"model; {_GO_ON}"
        ) from error


def _first_line(error: Exception) -> str:
    """What could not be allocated: the first line of a message, without the place in torch's source."""
    line = (str(error).splitlines() or ["no reason given"])[0]
    return line.rpartition("DefaultCPUAllocator: ")[2].rstrip(".")


def _machine_text() -> str:
    """How much memory of the machine is free, for the error; empty if the system does not say it."""
    free = free_memory()
    return "" if free is None else f" ({free / 2**30:.1f} GiB are free)"


def _gpu_text() -> str:
    """How much memory of the GPU is free, for the error; empty without a GPU."""
    if not torch.cuda.is_available():
        return ""
    free, total = torch.cuda.mem_get_info()
    return f" ({free / 2**30:.1f} of {total / 2**30:.1f} GiB are free)"
