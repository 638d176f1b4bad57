"""TensorBoard, MLflow and Weights & Biases beside the run's files: off unless asked for, offline by default.

`fedblade run --set trackers=tensorboard,mlflow` writes every number of the history into the run folder, where the
tracker's own tools read it. `history.jsonl` stays the record of the run: if a tracker fails, a note says so and the run
goes on.
"""

from fedblade.trackers._attach import TRACKERS, attached_trackers, check_installed

__all__ = ["TRACKERS", "attached_trackers", "check_installed"]
