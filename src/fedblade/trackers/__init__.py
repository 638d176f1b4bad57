"""TensorBoard, MLflow and Weights & Biases beside the run's own files: off unless asked for, offline by default.

`fedblade run --set trackers=tensorboard,mlflow` writes every number of the history into the folder of the run, where
the tracker's own tools read it. `history.jsonl` stays the record: a tracker that breaks says so and the run goes on.
"""

from fedblade.trackers._everyone import Everyone, Listener
from fedblade.trackers._tracked import TRACKERS, check_installed, tracked

__all__ = ["TRACKERS", "Everyone", "Listener", "check_installed", "tracked"]
