"""How the processes that torchrun started meet."""

import atexit
import os
from datetime import timedelta

import torch.distributed as dist

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.engines.ranks._notices import Notices
from fedblade.engines.ranks._ranks import Ranks

_START_SECONDS = 600
"""How long processes wait for each other to start."""


def launched() -> bool:
    """Whether this process is one of several that torchrun, or a program that sets the same variables, started."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(os.environ.get(name) for name in needed) and int(os.environ["WORLD_SIZE"]) > 1


_joined: list[Ranks] = []


def join() -> Ranks:
    """Connect to the other processes, once per process; all runs of the process use this connection."""
    if _joined and not _joined[0].broken:
        return _joined[0]
    if _joined:
        raise RunFailed("the ranks lost each other in an earlier run. Start all processes again.")
    if not dist.is_available() or not dist.is_gloo_available():
        raise Misconfigured(
            "this build of torch has no gloo, which ranks need for their exchanges. Install another build."
        )
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not dist.is_initialized():
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=_START_SECONDS))
        except (RuntimeError, ValueError) as error:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise RunFailed(f"rank {rank} of {world} did not meet the others at {where}: {error}") from error
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    notices = Notices(dist.distributed_c10d._get_default_store())
    _joined.append(Ranks(rank, world, local_rank, local_world, notices))
    atexit.register(_joined[0].close)
    return _joined[0]
