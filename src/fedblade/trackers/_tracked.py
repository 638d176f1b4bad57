"""The trackers there are, and a run that they follow."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, MissingExtra, nearest
from fedblade.trackers._backend import Backend, Sitting, Status
from fedblade.trackers._everyone import Everyone, Listener
from fedblade.trackers._mlflow import MLflow
from fedblade.trackers._tensorboard import TensorBoard
from fedblade.trackers._tracker import Tracker
from fedblade.trackers._wandb import WandB


@dataclass(frozen=True)
class Kind:
    """A tracker there is: how it is made, the package it needs, and its folder in the run's."""

    make: Callable[[], Backend]
    package: str
    folder: str


TRACKERS: dict[str, Kind] = {
    "tensorboard": Kind(TensorBoard, "tensorboard", "tensorboard"),
    "mlflow": Kind(MLflow, "mlflow", "mlruns"),
    "wandb": Kind(WandB, "wandb", "wandb"),
}
"""Trackers by the name a configuration gives them, which is also the extra that installs them."""


def check_installed(names: Sequence[str]) -> None:
    """Refuse trackers that do not exist or whose package is missing; nothing is imported."""
    for name in names:
        if name not in TRACKERS:
            raise Misconfigured(f"unknown tracker '{name}'.{nearest(name, TRACKERS)}")
        found = importlib.util.find_spec(TRACKERS[name].package)
        # A folder of that name, such as the one a tracker writes, would pass for a package without a file.
        if found is None or found.origin is None:
            raise MissingExtra(TRACKERS[name].package, name, f"the tracker '{name}'")


@contextmanager
def tracked(names: Sequence[str], folder: Path, settings: Mapping[str, Any], listener: Listener) -> Iterator[Listener]:
    """`listener` and the named trackers as one, closed with the status the run ends with, whichever way it ends.

    `settings` are the run's, by dotted key; the trackers write into `folder`.
    """
    trackers = [_tracker(name, folder, settings, listener) for name in dict.fromkeys(names)]
    status: Status = "interrupted"
    try:
        yield Everyone((listener, *trackers)) if trackers else listener
        status = "finished"
    except Exception:
        status = "failed"
        raise
    finally:
        for tracker in trackers:
            tracker.close(status)


def _tracker(name: str, folder: Path, settings: Mapping[str, Any], listener: Listener) -> Tracker:
    kind = TRACKERS[name]
    return Tracker(name, kind.make(), Sitting(folder, folder / kind.folder, settings), listener.on_note)
