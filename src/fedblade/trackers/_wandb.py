"""Weights & Biases: offline in the folder `wandb` of the run, online only where WANDB_MODE says so."""

import importlib
import os
import uuid
from collections.abc import Mapping
from typing import Any

from fedblade.trackers._backend import Opened, Sitting, Status

_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "interrupted": 130}


class WandB:
    """Numbers by round and the settings as the run's configuration.

    Offline every sitting leaves a folder `offline-run-*` under the same id, because the service that would join them
    is not asked; `wandb sync --append` joins them, given in order.
    """

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, sitting: Sitting) -> Opened:
        """Begin the run under an id that later sittings use again."""
        # Read when the package is imported: it would report its errors to its makers, which nobody asked for.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = importlib.import_module("wandb")
        online = os.environ.get("WANDB_MODE") == "online"
        identity = sitting.identity or uuid.uuid4().hex[:12]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedblade"),
            name=sitting.folder.resolve().name,
            id=identity,
            resume="allow" if online else None,
            reinit="create_new",
            dir=str(sitting.folder),
            config=dict(sitting.settings),
            settings=_settings(wandb, "online" if online else "offline"),
        )
        note = f"wandb: to send what was written, wandb sync {sitting.own}/offline-run-*"
        if online:
            note = "wandb: numbers are sent to Weights & Biases, because WANDB_MODE=online says so"
        return Opened(identity, sitting.logged, (note,))

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Record the numbers with the round as the step."""
        self._run.log(dict(scalars), step=round_, commit=True)

    def close(self, status: Status) -> None:
        """End the run with a status of 0 only if it finished."""
        self._run.finish(exit_code=_CODES[status])


def _settings(wandb: Any, mode: str) -> Any:
    """Only what is logged: no output of the terminal, no source code, no repository, no facts about the machine."""
    return wandb.Settings(
        mode=mode, silent=True, console="off", disable_git=True, disable_code=True, x_disable_machine_info=True
    )
