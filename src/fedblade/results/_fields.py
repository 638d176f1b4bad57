"""The descriptions of what metrics measure: stored with the run, and known for runs of earlier versions."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fedblade.core.fields import Field, restored, undescribed
from fedblade.core.registry import metrics
from fedblade.protocols import CALIBRATED

if TYPE_CHECKING:
    from fedblade.results._groups import Group

_BOOKKEEPING = frozenset({"round", "lr", "bytes_up", "bytes_down"})
_OTHER_KINDS = ("count_", "loss_", CALIBRATED)
"""Numbers that begin so are health counters, terms of the training loss, and measures of the calibrated model."""


@cache
def built_in_fields() -> Mapping[str, Field]:
    """Every number that a built-in metric writes, by name. The first call imports torch, because metrics need it."""
    entries = [entry for entry in metrics.entries() if entry.make.__module__.startswith("fedblade.diagnostics.")]
    return {field.name: field for entry in entries for field in entry.make().fields}


def all_fields(stored: Mapping[str, Field] | None, written: Iterable[str]) -> dict[str, Field]:
    """The fields of a run: as it stored them, then one for each measured number in its history without description.

    `written` are the names of the numbers in the history. A run of an earlier version stored no descriptions.
    """
    names = sorted(name for name in set(written) if _is_measured(name))
    if stored is None:
        stored = {name: field for name, field in built_in_fields().items() if name in names} if names else {}
    return {**stored, **{name: undescribed(name) for name in names if name not in stored}}


def described_fields(groups: "Sequence[Group]") -> list[Field]:
    """The fields that have a value in some round of the counted runs, in reading order: the main ones first.

    Where runs describe a field differently, the first run counts.
    """
    runs = [run for group in groups for run in group.counted]
    measured = {name for run in runs for round_ in run.history for name in round_.numbers}
    found: dict[str, Field] = {}
    for run in runs:
        for name, field in run.fields.items():
            found.setdefault(name, field)
    return sorted((field for name, field in found.items() if name in measured), key=lambda field: not field.main)


def descriptions(fields: Iterable[Field]) -> dict[str, Any]:
    """The content of `metrics.json`: the description of each field by its name."""
    return {field.name: field.description() for field in fields}


def read_descriptions(stored: Mapping[str, Any]) -> tuple[dict[str, Field], list[str]]:
    """The fields of a stored `metrics.json`, and the names of those whose description is broken."""
    found = {name: restored(name, description) for name, description in stored.items()}
    fields = {name: field for name, field in found.items() if field is not None}
    return fields, [name for name, field in found.items() if field is None]


def _is_measured(name: str) -> bool:
    """Whether a number in the history measures the model or the clients, and is no bookkeeping."""
    return name not in _BOOKKEEPING and not name.startswith(_OTHER_KINDS) and "seconds" not in name
