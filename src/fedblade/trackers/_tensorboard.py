"""TensorBoard: event files in the folder `tensorboard` of the run."""

import importlib
from collections.abc import Mapping
from typing import Any

from fedblade.trackers._backend import Opened, Session, Status


class TensorBoard:
    """Scalars by round, and the settings in the table of hyperparameters."""

    def __init__(self) -> None:
        self._writer: Any = None

    def open(self, session: Session) -> Opened:
        """Begin an event file. TensorBoard then ignores rounds after `last_round` in earlier files."""
        tensorboard = importlib.import_module("torch.utils.tensorboard")
        self._writer = tensorboard.SummaryWriter(str(session.tracker_folder), purge_step=session.last_round + 1)
        if not session.last_round:
            self._write_settings(session.settings)
        note = f"tensorboard: tensorboard --logdir {session.tracker_folder}"
        return Opened("tensorboard", session.last_round, (note,))

    def _write_settings(self, settings: Mapping[str, Any]) -> None:
        # `add_hparams` would write into another folder and add a point to every metric.
        summary = importlib.import_module("torch.utils.tensorboard.summary")
        plain = {key: value if isinstance(value, int | float | str) else str(value) for key, value in settings.items()}
        for entry in summary.hparams(plain, {"test_accuracy": 0.0}):
            self._writer.file_writer.add_summary(entry)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Write the numbers to disk at once, so that they survive if the process is killed."""
        for key, value in scalars.items():
            self._writer.add_scalar(key, value, round_)
        self._writer.flush()

    def close(self, status: Status) -> None:  # noqa: ARG002
        """Close the file; event files do not say how a run ended."""
        self._writer.close()
