"""Trained models in formats that other programs load, and the card that goes with them. Nothing is sent anywhere.

`export_model` writes a `TrainedNetwork` in a format. `class_names` are the names of the classes, and
`require_global_model` refuses a run that has no model to take along.
"""

from fedblade.exports._export import export_model, require_global_model
from fedblade.exports._network import TrainedNetwork, class_names

__all__ = ["TrainedNetwork", "class_names", "export_model", "require_global_model"]
