"""MLflow: a database in the folder `mlruns` of the run, or the server that MLFLOW_TRACKING_URI names."""

import importlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedblade.trackers._backend import Opened, Session, Status

_ENDS: dict[Status, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_MOST_PARAMS, _MOST_METRICS, _LONGEST_PARAM = 100, 1000, 500
"""Parameters and metrics that one request may hold, and the longest value of a parameter, in characters."""


class MLflow:
    """A run in the experiment `fedblade`: metrics by round, and the settings as parameters."""

    def __init__(self) -> None:
        self._client: Any = None
        self._entities: Any = None
        self._run = ""

    def open(self, session: Session) -> Opened:
        """Begin the run, or go on with it if the database still has it."""
        # The package reads this when it is imported. Without it, the package reports its use to its makers.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        client = importlib.import_module("mlflow").MlflowClient
        self._entities = importlib.import_module("mlflow.entities")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        server = os.environ.get("MLFLOW_TRACKING_URI")
        database = session.tracker_folder.resolve() / "mlflow.db"
        if session.run_id is None:
            # A process that was killed may have left half of the tables, and MLflow refuses to open such a file.
            # Nothing is lost: every number is in the history.
            database.unlink(missing_ok=True)
        local = f"sqlite:///{database}"
        self._client = client(tracking_uri=server or local)
        note = f"mlflow: mlflow ui --backend-store-uri {local}"
        if server:
            note = f"mlflow: numbers are sent to {server}, because MLFLOW_TRACKING_URI says so"
        if session.run_id is not None and self._has_run(session.run_id):
            self._run = session.run_id
            self._client.update_run(self._run, status="RUNNING")
            return Opened(self._run, session.last_round, (note,))
        self._begin(session, None if server else (session.tracker_folder.resolve() / "artifacts").as_uri())
        return Opened(self._run, 0, (note,))

    def _has_run(self, run_id: str) -> bool:
        """Whether the database has the run. It may be another database than in the last session."""
        missing = importlib.import_module("mlflow.exceptions").MlflowException
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except missing as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False

    def _begin(self, session: Session, artifacts: str | None) -> None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedblade")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name, artifacts)
        self._run = self._client.create_run(experiment, run_name=session.run_folder.resolve().name).info.run_id
        params = [self._entities.Param(key, str(value)[:_LONGEST_PARAM]) for key, value in session.settings.items()]
        for chunk in _chunks(params, _MOST_PARAMS):
            self._client.log_batch(self._run, params=chunk)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Send the numbers in as few requests as the limits allow."""
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(key, value, now, round_) for key, value in scalars.items()]
        for chunk in _chunks(metrics, _MOST_METRICS):
            self._client.log_batch(self._run, metrics=chunk)

    def close(self, status: Status) -> None:
        """Record how the run ended."""
        self._client.set_terminated(self._run, _ENDS[status])


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
