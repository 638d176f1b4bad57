"""Memory of a run: on the CPU what is freed is kept for the next layer, on a GPU a lack of it is told in words.

Activations of a stacked step are some megabytes each. The C library maps blocks of that size afresh and unmaps them
when they are freed, so that every layer pays for page faults: a third of a small network's time. Where there is no
glibc nothing happens.
"""

import contextlib
import ctypes
from collections.abc import Iterator

import torch

from fedblade.core.errors import RunFailed

_TRIM, _TOP_PAD, _MMAP = -1, -2, -3
_MEGABYTE = 2**20


def keep_freed_memory() -> bool:
    """Raise the thresholds of glibc's allocator for the rest of the process; says whether there was one to ask."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # 32 MB is the most that glibc takes for the first; larger blocks, of which there are few, come and go as before.
    wanted = ((_MMAP, 32 * _MEGABYTE), (_TRIM, 256 * _MEGABYTE), (_TOP_PAD, 16 * _MEGABYTE))
    taken = [set_option(option, size) for option, size in wanted]
    return all(taken)


@contextlib.contextmanager
def lack_of_memory_told() -> Iterator[None]:
    """Say what to do where a GPU's memory does not suffice for one client, or for measuring the model."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RunFailed(
            f"the GPU's memory is too small{_free()}, although no more than one client was trained or one batch "
            f"measured at a time. End other processes that use the GPU, lower local.batch_size or set "
            f"autocast=bf16; then go on with --resume, or start again where a setting was changed."
        ) from error


def _free() -> str:
    if not torch.cuda.is_available():
        return ""
    free, total = torch.cuda.mem_get_info()
    return f" ({free / 2**30:.1f} of {total / 2**30:.1f} GiB are free)"
