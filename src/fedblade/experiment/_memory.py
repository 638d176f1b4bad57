"""Memory of a CPU run: keep what is freed, instead of handing it back to the system between two layers.

Activations of a stacked step are some megabytes each. The C library maps blocks of that size afresh and unmaps them
when they are freed, so that every layer pays for page faults: a third of a small network's time. Where there is no
glibc nothing happens.
"""

import ctypes

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
