"""What rank 0 reads and chooses, told to all processes of a run before it begins."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fedblade.config.run_config import RunConfig, resolve
from fedblade.engines.ranks import LostRank, Ranks, describe_error, raise_described_error

T = TypeVar("T")
_LEAVE_FIRST_SECONDS = 0.5
"""How long others let rank 0 leave before them: torchrun stops everyone when the first process fails."""


def agreed_config(ranks: Ranks | None, make: Callable[[], RunConfig]) -> RunConfig:
    """The configuration that rank 0 reads, for every rank; what it reads need not be everywhere."""
    if ranks is None:
        return make()
    return followed_config(ranks) if not ranks.is_rank_0 else _told(ranks, make, lambda config: config.table())


def followed_config(ranks: Ranks) -> RunConfig:
    """The configuration that rank 0 has read."""
    return resolve(_heard(ranks))


def agreed_folder(ranks: Ranks | None, make: Callable[[], Path]) -> Path:
    """The folder that rank 0 chooses; the others hear of it by `followed_folder`."""
    return make() if ranks is None else _told(ranks, make, str)


def followed_folder(ranks: Ranks) -> Path:
    """The folder that rank 0 has chosen."""
    return Path(_heard(ranks))


def _told(ranks: Ranks, make: Callable[[], T], plain: Callable[[T], Any]) -> T:
    """What rank 0 makes, told to all others as plain values; its error, too."""
    try:
        made = make()
    except Exception as error:
        ranks.broadcast(describe_error(error))
        raise
    ranks.broadcast({"made": plain(made)})
    return made


def _heard(ranks: Ranks) -> Any:
    """What rank 0 has made, or its error."""
    message, _ = ranks.receive_broadcast()
    if "error" in message:
        leave_after_rank_0()
        raise_described_error(None, message["error"])
    return message["made"]


def unheard(error: Exception) -> bool:
    """Whether nobody else says what this rank, not rank 0, has met: if rank 0 is lost, rank 1 speaks."""
    return isinstance(error, LostRank) and os.environ["RANK"] == "1"


def leave_after_rank_0() -> None:
    """Give rank 0 the time to say what went wrong."""
    time.sleep(_LEAVE_FIRST_SECONDS)
