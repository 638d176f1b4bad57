"""One CPU thread while small networks are timed, as the library itself chooses for them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch uses one thread; on a shared machine more of them measure the neighbours."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
