"""What the server keeps of a client instead of its state: which of its states count."""

from dataclasses import dataclass

import torch

from fedblade.core.state import ClientStore
from fedblade.core.tree import State

_LEDGER, _TUNED = "_ledger", "_tuned"
_LOST = -1
"""The stage of an own model that was to be tuned and was not."""


@dataclass(frozen=True)
class Held:
    """Which of its states a client is to take: that of the last round whose reply was `used`, and whether it kept any.

    `stage` says how often its own model was tuned after the run; None that this failed.
    """

    used: tuple[int, bool] | None
    stage: int | None


def held(state: State | None) -> Held:
    """What the server's note on a client says; a client without one has never been used."""
    ledger, tuned = (state or {}).get(_LEDGER), (state or {}).get(_TUNED)
    used = None if ledger is None else (int(ledger["round"]), bool(ledger["kept"]))
    stage = 0 if tuned is None else int(tuned["stage"])
    return Held(used, None if stage == _LOST else stage)


def put_down(store: ClientStore, client: int, round_: int, *, kept: bool) -> None:
    """Note that a client's reply was used, so that a run that goes on finds the client's state of that round."""
    store.put(client, round_, {_LEDGER: {"round": torch.tensor(round_), "kept": torch.tensor(kept)}})


def after_tuning(state: State | None, stage: int | None) -> State:
    """A client's note with how often its own model was tuned by now, None if that failed."""
    return {**(state or {}), _TUNED: {"stage": torch.tensor(_LOST if stage is None else stage)}}
