"""Weights & Biases: offline in the folder `wandb` of the run, online only with WANDB_MODE=online."""

import importlib
import os
import uuid
from collections.abc import Mapping
from typing import Any

from fedblade.trackers._backend import Opened, Session, Status

_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "interrupted": 130}


class WandB:
    """Numbers by round, and the settings as the run's configuration.

    Offline, every session writes one folder `offline-run-*` with the same run id. `wandb sync --append` joins the
    folders if they are given in order.
    """

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, session: Session) -> Opened:
        """Begin the run under an id that later sessions use again."""
        # The package reads this when it is imported. Without it, the package reports errors to its makers.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = importlib.import_module("wandb")
        online = os.environ.get("WANDB_MODE") == "online"
        run_id = session.run_id or uuid.uuid4().hex[:12]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedblade"),
            name=session.run_folder.resolve().name,
            id=run_id,
            resume="allow" if online else None,
            reinit="create_new",
            dir=str(session.run_folder),
            config=dict(session.settings),
            settings=_settings(wandb, "online" if online else "offline"),
        )
        note = f"wandb: to send what was written, wandb sync {session.tracker_folder}/offline-run-*"
        if online:
            note = "wandb: numbers are sent to Weights & Biases, because WANDB_MODE=online says so"
        return Opened(run_id, session.last_round, (note,))

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Record the numbers with the round as the step."""
        self._run.log(dict(scalars), step=round_, commit=True)

    def close(self, status: Status) -> None:
        """End the run. Its exit code is 0 only if it finished."""
        self._run.finish(exit_code=_CODES[status])


def _settings(wandb: Any, mode: str) -> Any:
    """Record what is logged and nothing else: no terminal output, no source code, no repository, no machine facts."""
    return wandb.Settings(
        mode=mode, silent=True, console="off", disable_git=True, disable_code=True, x_disable_machine_info=True
    )
