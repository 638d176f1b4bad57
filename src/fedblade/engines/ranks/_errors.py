"""Errors that travel between ranks: an error of one rank is raised on all ranks."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fedblade.core import errors
from fedblade.engines.ranks._bytes import Json
from fedblade.engines.ranks._ranks import Ranks

_KNOWN = (
    errors.NonFinite, errors.CorruptFile, errors.RunFailed, errors.Unsupported, errors.Misconfigured,
)  # fmt: skip
"""Types that another rank's error is raised as. An error of another type is a bug and is raised as `RunFailed`."""


def describe_error(error: BaseException) -> Json:
    """An error as plain values for JSON."""
    names = [type_.__name__ for type_ in type(error).__mro__]
    known = next((type_.__name__ for type_ in _KNOWN if type_.__name__ in names), None)
    text = str(error) if known else f"unexpected {type(error).__name__}: {error}"
    return {"error": {"type": known, "text": text, "trace": "".join(traceback.format_exception(error))}}


def raise_described_error(rank: int | None, error: Mapping[str, Any]) -> NoReturn:
    """Raise an error that another rank described; with `rank`, the message names the rank."""
    type_ = {type_.__name__: type_ for type_ in _KNOWN}.get(error["type"], errors.RunFailed)
    raised = type_(error["text"] if rank is None else f"rank {rank}: {error['text']}")
    raised.add_note(error["trace"])
    raise raised


def raise_first_error(ranks: Ranks, headers: Sequence[Json], own_error: Exception | None) -> None:
    """Raise the error of the first rank that has one. All ranks do this, so none of them is busy afterwards."""
    for rank, header in enumerate(headers):
        if "error" in header:
            ranks.busy = False
            if rank == ranks.rank and own_error is not None:
                raise own_error
            raise_described_error(rank, header["error"])
