"""Which data sets are on this machine, without reading their samples."""

from dataclasses import dataclass
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._load import decoded_copies
from fedblade.data._spec import SPECS, Spec, find_place

State = Literal["embedded", "cached", "found", "missing", "yours"]


@dataclass(frozen=True)
class Status:
    """A data set, whether it is on this machine, and its folder or what to do to get it.

    `embedded` means that this package contains it, `cached` that it is decoded and ready, `found` that its files exist,
    `yours` that the user gives the path.
    """

    name: str
    state: State
    note: str


def status(name: str) -> Status:
    """The status of a registered data set."""
    # The registry loads the module of the data set, which describes the files.
    entry = datasets.get(name)
    if name in SPECS:
        return _spec_status(SPECS[name])
    if name == "digits":
        return Status(name, "embedded", "part of fedblade")
    if "path" in entry.knobs():
        return Status(name, "yours", "--set dataset.path=PATH")
    return Status(name, "yours", "made by a plug-in")


def _spec_status(spec: Spec) -> Status:
    copies, place = decoded_copies(spec), find_place(spec)
    if copies:
        return Status(spec.name, "cached", str(place or copies[0]))
    if place is not None:
        return Status(spec.name, "found", f"{place}; decode it: fedblade data {spec.name}")
    todo = f"fedblade data {spec.name} --download" if spec.hub else f"fedblade data {spec.name} says how to get it"
    return Status(spec.name, "missing", todo)


def find_spec(name: str) -> Spec | None:
    """The description of a data set whose files are looked for on this machine; None for an embedded data set.

    A data set that is unknown or that is always read from a given path is an error.
    """
    state = status(datasets.get(name).name)
    if state.state == "yours":
        raise Misconfigured(
            f"dataset '{name}' is read from your data and needs no preparation. Use it directly: "
            f"fedblade run --set dataset={name} {state.note}"
        )
    return SPECS.get(name)
