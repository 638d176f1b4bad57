"""A run's configuration: read from presets, files and overrides, checked, and written out with every default."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedblade.config.schema import (
    FIXED,
    NAMED,
    ORDER,
    Checkpoint,
    DatasetSettings,
    Distributed,
    Evaluation,
    Federation,
    General,
    Local,
    ModelSettings,
    Optimizer,
    PartitionSettings,
    Section,
)
from fedblade.config.settings import REGISTRIES
from fedblade.config.validation import check_keys, knob_model, no_knob, plain, validate
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import Entry
from fedblade.methods import Composition, compose

FROM_PYTHON = "object"
"""Name of a data set or model that was passed from Python instead of chosen by name."""


@dataclass(frozen=True)
class ChosenPart:
    """A registered part with its checked knobs."""

    name: str
    entry: Entry | None
    knobs: Mapping[str, Any]
    kind: str = "part"

    def make(self, *args: Any) -> Any:
        """Build the part; `args` are what its function takes besides the knobs."""
        if self.entry is None:
            raise Misconfigured(
                f"this run had its {self.kind} passed from Python; pass it to fedblade.run again to go on with it."
            )
        return self.entry.make(*args, **self.knobs)

    @property
    def is_own(self) -> bool:
        """Whether the part is the user's (passed from Python, by reference or of a plugin), not this library's."""
        return self.entry is None or not self.entry.make.__module__.startswith("fedblade.")


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run. Two runs with equal tables and data give equal results."""

    general: General
    dataset: ChosenPart
    dataset_settings: DatasetSettings
    partition: ChosenPart
    partition_settings: PartitionSettings
    federation: Federation
    model: ChosenPart
    model_settings: ModelSettings
    local: Local
    optimizer: Optimizer
    method: Composition
    method_knobs: Mapping[str, Any]
    evaluation: Evaluation
    checkpoint: Checkpoint
    distributed: Distributed

    def build_method(self) -> Method:
        """The method value."""
        return self.method.build(self.method_knobs)

    @property
    def split_seed(self) -> int:
        """The seed that decides who holds what and is tested on what."""
        chosen = self.partition_settings.seed
        return self.general.seed if chosen == "auto" else chosen

    def with_seed(self, seed: int) -> "RunConfig":
        """The same run with another seed."""
        return replace(self, general=validate(General, {**self.general.model_dump(), "seed": seed}, ""))

    def table(self) -> dict[str, Any]:
        """The configuration as plain nested tables, every default written out."""
        named = {
            "dataset": {"name": self.dataset.name, **plain(self.dataset_settings), **plain(self.dataset.knobs)},
            "partition": {"name": self.partition.name, **plain(self.partition_settings), **plain(self.partition.knobs)},
            "model": {"name": self.model.name, **plain(self.model_settings), **plain(self.model.knobs)},
            "method": {"name": self.method.name, **plain(self.method_knobs)},
        }
        fixed = {name: plain(getattr(self, name)) for name in FIXED}
        tables = named | fixed
        return {**plain(self.general), **{name: tables[name] for name in ORDER}}

    def to_toml(self) -> str:
        """The text of `config.toml`."""
        return tomli_w.dumps(self.table())


def complete_config(raw: Mapping[str, Any]) -> RunConfig:
    """Check nested tables (a file, a preset, a resumed run) and fill in every default."""
    check_keys("", raw, (*General.model_fields, *ORDER))
    check_tables(raw)
    general = validate(General, {key: value for key, value in raw.items() if key in General.model_fields}, "")
    fixed: dict[str, Any] = {name: validate(model, raw.get(name, {}), name) for name, model in FIXED.items()}
    parts: dict[str, Any] = {}
    for kind in ("dataset", "partition", "model"):
        parts[kind], parts[f"{kind}_settings"] = _choose(kind, dict(raw.get(kind, {})))
    composition, knobs = _choose_method(dict(raw.get("method", {})))
    _check_cohort(fixed["federation"])
    return RunConfig(general=general, method=composition, method_knobs=knobs, **fixed, **parts)


def check_tables(raw: Mapping[str, Any]) -> None:
    """Refuse sections that are not tables and parts whose name is not a name."""
    for name in (*ORDER, "methods"):
        table = raw.get(name, {})
        if not isinstance(table, Mapping):
            raise Misconfigured(f"{name} = {table!r} is not a table; expected keys under [{name}].")
        if name in NAMED and not isinstance(table.get("name", ""), str):
            raise Misconfigured(
                f"{name}.name is {table['name']!r}; expected a name. `fedblade list {name}s` shows what there is."
            )


def knob_tables(name: str) -> dict[str, Any]:
    """A method's knobs with their defaults as plain tables, regularisers in tables of their own."""
    composition = compose(name)
    knobs = {key: plain(knob.default) for key, knob in composition.base.knobs().items()}
    for entry in composition.added:
        knobs[entry.name] = {key: plain(knob.default) for key, knob in entry.knobs().items()}
    return knobs


def _choose(kind: str, raw: dict[str, Any]) -> tuple[ChosenPart, Section]:
    """A part by its name, with its knobs and the section's own settings checked.

    A knob goes before a setting of the same name: `model.init` of a ResNet-20 is the ResNet's own.
    """
    name = _name(kind, raw)
    settings_model = NAMED[kind]
    entry = None if name == FROM_PYTHON else REGISTRIES[kind].get(name)
    knobs = _knobs(entry) if entry else {}
    check_keys(kind, raw, (*settings_model.model_fields, *knobs))
    own = {k: v for k, v in raw.items() if k in settings_model.model_fields and k not in knobs}
    settings = validate(settings_model, own, kind)
    model = knob_model(name, knobs)
    checked = validate(model, {k: v for k, v in raw.items() if k in knobs}, kind)
    chosen = ChosenPart(name, entry, {key: getattr(checked, key) for key in knobs}, kind)
    return chosen, _with_start(settings, chosen) if isinstance(settings, ModelSettings) else settings


def _with_start(settings: ModelSettings, model: ChosenPart) -> ModelSettings:
    """Where the model's first weights come from, "auto" decided."""
    if settings.init == "given" and not model.is_own:
        raise Misconfigured(
            f"model.init = 'given' is for a model of your own; model '{model.name}' is drawn for every seed. "
            f"Leave model.init out, or use fedblade.run(model=module) or model=file.py:function."
        )
    if settings.init != "auto":
        return settings
    return settings.model_copy(update={"init": "given" if model.is_own else "seed"})


def _choose_method(raw: dict[str, Any]) -> tuple[Composition, dict[str, Any]]:
    name = _name("method", raw)
    composition = compose(name)
    base, added = _knobs(composition.base), {entry.name: entry for entry in composition.added}
    for key in raw:
        if key not in (*base, *added):
            raise Misconfigured(no_knob(f"method.{key}", name, (*base, *added)))
    checked = validate(knob_model(name, base), {k: v for k, v in raw.items() if k in base}, "method")
    knobs: dict[str, Any] = {key: getattr(checked, key) for key in base}
    for key, entry in added.items():
        own = entry.knobs()
        table = validate(knob_model(key, own), raw.get(key, {}), f"method.{key}")
        knobs[key] = {each: getattr(table, each) for each in own}
    return composition, knobs


def _knobs(entry: Entry) -> dict[str, inspect.Parameter]:
    """A part's knobs; a default that a configuration file cannot hold is the author's mistake, and named."""
    knobs = entry.knobs()
    for key, knob in knobs.items():
        try:
            tomli_w.dumps({key: plain(knob.default)})
        except TypeError as error:
            raise Misconfigured(
                f"knob '{key}' of '{entry.name}' has the default {knob.default!r}, which TOML cannot hold. "
                f'Use a number, a string such as "none", a list or a frozen dataclass.'
            ) from error
    return knobs


def _name(kind: str, raw: dict[str, Any]) -> str:
    name = raw.pop("name", None)
    if not isinstance(name, str):
        raise Misconfigured(f"{kind}.name is {name!r}; expected a name. `fedblade list {kind}s` shows what there is.")
    place, _, rest = name.rpartition(":")
    # A file is stored by its absolute path, so that the run can go on from another folder.
    return f"{Path(place).resolve()}:{rest}" if place.endswith(".py") else name


def _check_cohort(federation: Federation) -> None:
    if federation.clients_per_round > federation.num_clients:
        raise Misconfigured(
            f"federation.clients_per_round = {federation.clients_per_round} is more than federation.num_clients = "
            f"{federation.num_clients}. Lower it or raise num_clients."
        )
