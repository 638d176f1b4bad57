"""TensorBoard: event files in the folder `tensorboard` of the run."""

import importlib
from collections.abc import Mapping
from typing import Any

from fedblade.trackers._backend import Opened, Sitting, Status


class TensorBoard:
    """Scalars by round, and the settings in the table of hyperparameters."""

    def __init__(self) -> None:
        self._writer: Any = None

    def open(self, sitting: Sitting) -> Opened:
        """Begin an event file; a reader drops what earlier files say of rounds that are still to come."""
        tensorboard = importlib.import_module("torch.utils.tensorboard")
        self._writer = tensorboard.SummaryWriter(str(sitting.own), purge_step=sitting.logged + 1)
        if not sitting.logged:
            self._write_settings(sitting.settings)
        return Opened("tensorboard", sitting.logged, (f"tensorboard: tensorboard --logdir {sitting.own}",))

    def _write_settings(self, settings: Mapping[str, Any]) -> None:
        # `add_hparams` would write into a folder of its own and add a point to each metric.
        summary = importlib.import_module("torch.utils.tensorboard.summary")
        plain = {key: value if isinstance(value, int | float | str) else str(value) for key, value in settings.items()}
        for part in summary.hparams(plain, {"test_accuracy": 0.0}):
            self._writer.file_writer.add_summary(part)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Write the numbers and make sure that a kill does not lose them."""
        for key, value in scalars.items():
            self._writer.add_scalar(key, value, round_)
        self._writer.flush()

    def close(self, status: Status) -> None:  # noqa: ARG002
        """Close the file; event files do not say how a run ended."""
        self._writer.close()
