"""What of each data set is on this machine, told without reading it."""

import importlib.util
from dataclasses import dataclass
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._load import decoded_copies
from fedblade.data._places import find_place
from fedblade.data._spec import SPECS, Spec

State = Literal["embedded", "cached", "found", "missing", "yours"]


@dataclass(frozen=True)
class Status:
    """A data set, whether it is there, and where it lies or what to do about it.

    `cached` means decoded and ready, `found` that the files are there, `yours` that it is read from a given path.
    """

    name: str
    state: State
    note: str


def status(name: str) -> Status:
    """Where a registered data set stands."""
    if name in SPECS:
        return _of_spec(SPECS[name])
    if name == "digits":
        if importlib.util.find_spec("sklearn") is None:
            return Status(name, "missing", "pip install 'fedblade[digits]'")
        return Status(name, "embedded", "in the scikit-learn wheel")
    if "path" in datasets.get(name).knobs():
        return Status(name, "yours", "--set dataset.path=PATH")
    return Status(name, "yours", "made by a plug-in")


def _of_spec(spec: Spec) -> Status:
    copies, place = decoded_copies(spec), find_place(spec)
    if copies:
        return Status(spec.name, "cached", str(place or copies[0]))
    if place is not None:
        return Status(spec.name, "found", f"{place}; decode it: fedblade data {spec.name}")
    todo = f"fedblade data {spec.name} --download" if spec.hub else f"fedblade data {spec.name} says how to get it"
    return Status(spec.name, "missing", todo)


def find_spec(name: str) -> Spec | None:
    """The description of a data set that is looked for on this machine; None for an embedded one.

    Raises if the data set is unknown or is always read from a path of the user's.
    """
    state = status(datasets.get(name).name)
    if state.state == "yours":
        raise Misconfigured(
            f"dataset '{name}' has no place of its own to prepare. Use it directly: "
            f"fedblade run --set dataset={name} {state.note}"
        )
    return SPECS.get(name)
