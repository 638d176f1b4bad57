"""The table of figures, `figures.toml`, as values."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from fedblade.core.errors import Misconfigured


@dataclass(frozen=True)
class Field:
    """A number of a run: its axis label, its name beside others, and the metric or the setting that makes it.

    Fields of one `scale` share their vertical axis, as those of one label do. `otherwise` is the field to take for runs
    that do not have this one.
    """

    key: str
    label: str
    name: str = ""
    metric: str = ""
    needs: str = ""
    scale: str = ""
    otherwise: str = ""

    @property
    def source(self) -> str:
        """What a run must have had to have the field, in words."""
        return f"evaluation.metrics = [..., {self.metric!r}]".replace("'", '"') if self.metric else self.needs


@dataclass(frozen=True)
class Part:
    """One file of a figure; `figures.toml` explains the entries."""

    name: str
    draw: str
    panels: tuple[tuple[Field, ...], ...]
    lines: str = "auto"
    x: str = ""
    axis: str = ""
    log: str = ""
    note: Field | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    """Settings that other parts sweep, so that they stay at their usual value here."""

    @property
    def required(self) -> tuple[Field, ...]:
        """Every field of the part."""
        return tuple(each for panel in self.panels for each in panel) + ((self.note,) if self.note else ())


@dataclass(frozen=True)
class Variant:
    """A name for a method with certain settings."""

    method: str
    where: Mapping[str, str]
    label: str


def general_figures() -> list[Part]:
    """The figures that any runs may have."""
    return [part for name, entry in _table()["general"].items() for part in _parts(name, entry)]


def paper_figure(identity: str) -> list[Part]:
    """The parts of a paper's figure."""
    papers = _table()["papers"]
    if identity not in papers:
        raise Misconfigured(f"there is no figure '{identity}'. Choose from: {', '.join(papers)}.")
    return _parts(identity, papers[identity])


def paper_ids() -> tuple[str, ...]:
    """Ids of the papers' figures."""
    return tuple(_table()["papers"])


@functools.cache
def variants() -> tuple[Variant, ...]:
    """Names of methods with certain settings, the more particular first."""
    return tuple(Variant(**entry) for entry in _table()["variants"])


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("fedblade") / "figures" / "figures.toml").read_text(encoding="utf-8"))


def find_field(key: str) -> Field:
    """A field by its key."""
    return Field(key, **_table()["fields"][key])


def _parts(name: str, entry: Mapping[str, Any]) -> list[Part]:
    entries = entry.get("parts", [entry])
    swept = [each["x"] for each in entries if "x" in each]
    names = [name] if len(entries) == 1 else [f"{name}{letter}" for letter in "abcdefgh"[: len(entries)]]
    return [_part(own, each, swept) for own, each in zip(names, entries, strict=True)]


def _part(name: str, entry: Mapping[str, Any], swept: list[str]) -> Part:
    rest = {key: value for key, value in entry.items() if key not in ("panels", "note", "otherwise")}
    otherwise = entry.get("otherwise", {})
    return Part(
        name=name,
        panels=tuple(
            tuple(replace(find_field(key), otherwise=otherwise.get(key, "")) for key in keys)
            for keys in entry["panels"]
        ),
        note=find_field(entry["note"]) if "note" in entry else None,
        held=tuple(key for key in swept if key != entry.get("x")) if "x" in entry else (),
        **rest,
    )
