"""Runs: configuration, presets, the round loop, run folders and trained models."""

from fedblade.experiment._model import TrainedModel, load
from fedblade.experiment._request import load_config, next_run_folder
from fedblade.experiment._result import Result
from fedblade.experiment._run import execute, run

__all__ = ["Result", "TrainedModel", "execute", "load", "load_config", "next_run_folder", "run"]
