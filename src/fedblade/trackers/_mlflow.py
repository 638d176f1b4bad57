"""MLflow: a database in the folder `mlruns` of the run, or the server that MLFLOW_TRACKING_URI names."""

import importlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedblade.trackers._backend import Opened, Sitting, Status

_ENDS: dict[Status, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_MOST_PARAMS, _MOST_METRICS, _LONGEST_PARAM = 100, 1000, 500
"""What one request may hold, and the longest setting that every store takes."""


class MLflow:
    """Metrics by round and the settings as parameters, of one run in an experiment named fedblade."""

    def __init__(self) -> None:
        self._client: Any = None
        self._entities: Any = None
        self._run = ""

    def open(self, sitting: Sitting) -> Opened:
        """Begin the run, or go on with it where the store still has it."""
        # Read when the package is imported: it would report its use to its makers, which nobody asked for.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        client = importlib.import_module("mlflow").MlflowClient
        self._entities = importlib.import_module("mlflow.entities")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        given = os.environ.get("MLFLOW_TRACKING_URI")
        database = sitting.own.resolve() / "mlflow.db"
        if sitting.identity is None:
            # Killed while its tables were made, it would refuse to open. What it may hold is in the history as well.
            database.unlink(missing_ok=True)
        local = f"sqlite:///{database}"
        self._client = client(tracking_uri=given or local)
        note = f"mlflow: mlflow ui --backend-store-uri {local}"
        if given:
            note = f"mlflow: numbers are sent to {given}, because MLFLOW_TRACKING_URI says so"
        if sitting.identity is not None and self._found(sitting.identity):
            self._run = sitting.identity
            self._client.update_run(self._run, status="RUNNING")
            return Opened(self._run, sitting.logged, (note,))
        self._begin(sitting, None if given else (sitting.own.resolve() / "artifacts").as_uri())
        return Opened(self._run, 0, (note,))

    def _found(self, identity: str) -> bool:
        """Whether the store has the run: another one, named since the last sitting, has not."""
        missing = importlib.import_module("mlflow.exceptions").MlflowException
        try:
            return bool(self._client.get_run(identity).info.lifecycle_stage == "active")
        except missing as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False

    def _begin(self, sitting: Sitting, artifacts: str | None) -> None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedblade")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name, artifacts)
        self._run = self._client.create_run(experiment, run_name=sitting.folder.resolve().name).info.run_id
        params = [self._entities.Param(key, str(value)[:_LONGEST_PARAM]) for key, value in sitting.settings.items()]
        for part in _parts(params, _MOST_PARAMS):
            self._client.log_batch(self._run, params=part)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Send the numbers in as few requests as the limits allow."""
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(key, value, now, round_) for key, value in scalars.items()]
        for part in _parts(metrics, _MOST_METRICS):
            self._client.log_batch(self._run, metrics=part)

    def close(self, status: Status) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._run, _ENDS[status])


def _parts(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]
