"""The configuration and the folder of a shared run: rank 0 chooses them and sends them to the other ranks."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fedblade.config.run_config import RunConfig, complete_config
from fedblade.engines.ranks import LostRank, Ranks, describe_error, raise_described_error

T = TypeVar("T")
_LEAVE_FIRST_SECONDS = 0.5
"""How long the other ranks wait for rank 0 to end first: torchrun stops all processes when the first one fails."""


def agreed_config(ranks: Ranks | None, make: Callable[[], RunConfig]) -> RunConfig:
    """The configuration that rank 0 reads, on every rank. Its files need not exist on other machines."""
    if ranks is None:
        return make()
    return received_config(ranks) if not ranks.is_rank_0 else _send(ranks, make, lambda config: config.table())


def received_config(ranks: Ranks) -> RunConfig:
    """The configuration that rank 0 sent."""
    return complete_config(_receive(ranks))


def agreed_folder(ranks: Ranks | None, make: Callable[[], Path]) -> Path:
    """Rank 0: choose the folder and send it; the other ranks call `received_folder`."""
    return make() if ranks is None else _send(ranks, make, str)


def received_folder(ranks: Ranks) -> Path:
    """The folder that rank 0 sent."""
    return Path(_receive(ranks))


def _send(ranks: Ranks, make: Callable[[], T], plain: Callable[[T], Any]) -> T:
    """Rank 0: make a value and send it to the other ranks as plain data. If making fails, send the error."""
    try:
        made = make()
    except Exception as error:
        ranks.broadcast(describe_error(error))
        raise
    ranks.broadcast({"made": plain(made)})
    return made


def _receive(ranks: Ranks) -> Any:
    """The value that rank 0 sent. If rank 0 sent an error, raise it."""
    message, _ = ranks.receive_broadcast()
    if "error" in message:
        leave_after_rank_0()
        raise_described_error(None, message["error"])
    return message["made"]


def must_report_error(error: Exception) -> bool:
    """Whether this rank, which is not rank 0, must print the error: rank 1 does if the connection to rank 0 is lost."""
    return isinstance(error, LostRank) and os.environ["RANK"] == "1"


def leave_after_rank_0() -> None:
    """Wait until rank 0 has printed its error."""
    time.sleep(_LEAVE_FIRST_SECONDS)
