"""The trackers by name, and how they are attached to a run."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, MissingExtra, nearest
from fedblade.core.listener import ListenerGroup, RunListener
from fedblade.trackers._backend import Backend, Session, Status
from fedblade.trackers._mlflow import MLflow
from fedblade.trackers._tensorboard import TensorBoard
from fedblade.trackers._tracker import Tracker
from fedblade.trackers._wandb import WandB


@dataclass(frozen=True)
class TrackerKind:
    """One kind of tracker: its backend, the package that it needs, and its folder inside the run folder."""

    make: Callable[[], Backend]
    package: str
    folder: str


TRACKERS: dict[str, TrackerKind] = {
    "tensorboard": TrackerKind(TensorBoard, "tensorboard", "tensorboard"),
    "mlflow": TrackerKind(MLflow, "mlflow", "mlruns"),
    "wandb": TrackerKind(WandB, "wandb", "wandb"),
}
"""Trackers by their name in a configuration. The extra that installs a tracker has the same name."""


def check_installed(names: Sequence[str]) -> None:
    """Refuse trackers that do not exist or whose package is missing. Nothing is imported."""
    for name in names:
        if name not in TRACKERS:
            raise Misconfigured(f"unknown tracker '{name}'.{nearest(name, TRACKERS)}")
        package = importlib.util.find_spec(TRACKERS[name].package)
        # Python takes a folder with the package's name (such as the folder of a tracker) for a package without a file.
        if package is None or package.origin is None:
            raise MissingExtra(TRACKERS[name].package, name, f"the tracker '{name}'")


@contextmanager
def attached_trackers(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any], listener: RunListener
) -> Iterator[RunListener]:
    """`listener` and the named trackers as one listener; at the end the trackers are closed with the run's status.

    `folder` is the run folder, in which the trackers write. `settings` is the run's configuration by dotted key.
    """
    trackers = [_tracker(name, folder, settings, listener) for name in dict.fromkeys(names)]
    status: Status = "interrupted"
    try:
        yield ListenerGroup((listener, *trackers)) if trackers else listener
        status = "finished"
    except Exception:
        status = "failed"
        raise
    finally:
        for tracker in trackers:
            tracker.close(status)


def _tracker(name: str, folder: Path, settings: Mapping[str, Any], listener: RunListener) -> Tracker:
    kind = TRACKERS[name]
    return Tracker(name, kind.make(), Session(folder, folder / kind.folder, settings), listener.on_note)
