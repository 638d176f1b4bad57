"""The server's notes on clients. A client's state stays on its node; the server notes which of the states is valid."""

from dataclasses import dataclass

import torch

from fedblade.core.state import ClientStore
from fedblade.core.tree import State

_LEDGER, _TUNED = "_ledger", "_tuned"
_TUNING_FAILED = -1
"""Stands in a stored note for the stage of a personal model whose tuning failed."""


@dataclass(frozen=True)
class StateNote:
    """Which of its states a client has to load.

    `used` is the last round whose reply was used, and whether the client saved a state in that round; None before the
    first used reply. `stage` counts how often the client's personal model was tuned after the run; None if that failed.
    """

    used: tuple[int, bool] | None
    stage: int | None


def read_note(state: State | None) -> StateNote:
    """The note that the server stored on a client; without one, no reply of the client was used."""
    ledger, tuned = (state or {}).get(_LEDGER), (state or {}).get(_TUNED)
    used = None if ledger is None else (int(ledger["round"]), bool(ledger["kept"]))
    stage = 0 if tuned is None else int(tuned["stage"])
    return StateNote(used, None if stage == _TUNING_FAILED else stage)


def note_used_reply(store: ClientStore, client: int, round_: int, *, kept: bool) -> None:
    """Store that a client's reply was used, so that a resumed run finds the client's state of that round."""
    store.put(client, round_, {_LEDGER: {"round": torch.tensor(round_), "kept": torch.tensor(kept)}})


def with_tuning_stage(state: State | None, stage: int | None) -> State:
    """A client's note with the number of tunings so far; None if the tuning failed."""
    return {**(state or {}), _TUNED: {"stage": torch.tensor(_TUNING_FAILED if stage is None else stage)}}
