"""The table of figures, `figures.toml`, as values."""

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from fedblade.charts import find_field, metric_by_number, other_fields
from fedblade.core.errors import Misconfigured
from fedblade.results import Group


@dataclass(frozen=True)
class Number:
    """A number of a run: its axis label, its name beside others, and the metric or the setting that makes it.

    The label and the name of a number that a metric writes are known once there are runs that describe it. Numbers of
    one `scale` share their vertical axis, as those of one label do. `otherwise` is the number to take for runs that do
    not have this one.
    """

    key: str
    label: str = ""
    part: str = ""
    metric: str = ""
    needs: str = ""
    scale: str = ""
    otherwise: str = ""

    @property
    def source(self) -> str:
        """The setting a run needs to record this number."""
        return f'evaluation.metrics = [..., "{self.metric}"]' if self.metric else self.needs

    def described(self, groups: Sequence[Group]) -> "Number":
        """The number with the label and the name that the runs give it."""
        description = find_field(groups, self.key) or find_field(groups, self.otherwise)
        if self.label or description is None:
            return self
        unit = f" ({description.unit})" if description.unit else ""
        label = description.short or description.label + unit
        # matplotlib takes text between dollar signs for a formula.
        return replace(self, label=label.replace("$", r"\$"), part=description.variant)


@dataclass(frozen=True)
class Part:
    """One file of a figure; `figures.toml` explains the entries."""

    name: str
    draw: str
    panels: tuple[tuple[Number, ...], ...]
    lines: str = "auto"
    x: str = ""
    axis: str = ""
    log: str = ""
    note: Number | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    """Settings that other parts sweep: runs of this part have their usual value."""
    of_paper: bool = False
    """Whether methods have the names of the papers; elsewhere they have those of the report."""

    @property
    def required(self) -> tuple[Number, ...]:
        """Every number of the part."""
        return tuple(number for panel in self.panels for number in panel) + ((self.note,) if self.note else ())

    def described(self, groups: Sequence[Group]) -> "Part":
        """The part with the labels that the runs give its numbers."""
        panels = tuple(tuple(number.described(groups) for number in panel) for panel in self.panels)
        return replace(self, panels=panels, note=self.note and self.note.described(groups))


@dataclass(frozen=True)
class Variant:
    """A name for a method with certain settings."""

    method: str
    where: Mapping[str, str]
    label: str


def general_figures(groups: Sequence[Group] = ()) -> list[Part]:
    """The figures that any runs may have, then one for each field that only these runs describe."""
    known = [part for name, entry in _table()["general"].items() for part in _parts(name, entry)]
    keys = [other.name for other in other_fields(groups)]
    names = ["-".join(["metric", *re.findall("[a-z0-9]+", key.lower())]) for key in keys]
    unique = [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names, 1)]
    return known + [Part(name, "rounds", ((Number(key),),)) for name, key in zip(unique, keys, strict=True)]


def paper_figure(identity: str) -> list[Part]:
    """The parts of a paper's figure."""
    papers = _table()["papers"]
    if identity not in papers:
        raise Misconfigured(f"there is no figure '{identity}'. Choose from: {', '.join(papers)}.")
    return [replace(part, of_paper=True) for part in _parts(identity, papers[identity])]


def paper_ids() -> tuple[str, ...]:
    """Ids of the papers' figures."""
    return tuple(_table()["papers"])


@functools.cache
def variants() -> tuple[Variant, ...]:
    """Names of methods with certain settings, the more particular first."""
    return tuple(Variant(**entry) for entry in _table()["variants"])


def number_spec(key: str) -> Number:
    """How a number of the history or the summary is drawn; `key` is its name there."""
    scale = next((name for name, keys in _table()["scales"].items() if key in keys), "")
    spec = {"metric": metric_by_number().get(key, ""), **_table()["numbers"].get(key, {})}
    return Number(key, scale=scale, **spec)


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("fedblade.figures") / "figures.toml").read_text(encoding="utf-8"))


def _parts(name: str, entry: Mapping[str, Any]) -> list[Part]:
    entries = entry.get("parts", [entry])
    swept = [part["x"] for part in entries if "x" in part]
    names = [name] if len(entries) == 1 else [f"{name}{letter}" for letter in "abcdefgh"[: len(entries)]]
    return [_part(part_name, part, swept) for part_name, part in zip(names, entries, strict=True)]


def _part(name: str, entry: Mapping[str, Any], swept: list[str]) -> Part:
    rest = {key: value for key, value in entry.items() if key not in ("panels", "note", "otherwise")}
    otherwise = entry.get("otherwise", {})
    return Part(
        name=name,
        panels=tuple(
            tuple(replace(number_spec(key), otherwise=otherwise.get(key, "")) for key in keys)
            for keys in entry["panels"]
        ),
        note=number_spec(entry["note"]) if "note" in entry else None,
        held=tuple(key for key in swept if key != entry.get("x")) if "x" in entry else (),
        **rest,
    )
