"""The configuration of a run: checked, with every default filled in."""

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
    Stop,
)
from fedblade.config.settings import NOTES, REGISTRIES, Notes
from fedblade.config.validation import check_keys, knob_model, plain, unknown_knob, validate
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import Entry, participations
from fedblade.methods import Composition, compose

FROM_PYTHON = "object"
"""The name of a data set or model that was passed from Python as an object."""
UNIFORM = "uniform"
"""The participation of a run that names none."""
HELD_BY_NODES = "nodes"
"""The name of the partition of a run whose nodes have their own data: there is no data set to divide."""


@dataclass(frozen=True)
class ChosenPart:
    """A registered part that a configuration names, with its checked knobs. An object from Python has no entry."""

    name: str
    entry: Entry | None
    knobs: Mapping[str, Any]
    kind: str = "part"

    @staticmethod
    def uniform() -> "ChosenPart":
        """The participation of a run that names none."""
        return ChosenPart(UNIFORM, participations.get(UNIFORM), {}, "participation")

    def make(self, *args: Any) -> Any:
        """Build the part. `args` are the arguments of its function besides the knobs."""
        if self.name == HELD_BY_NODES:
            raise Misconfigured(
                f"partition '{HELD_BY_NODES}' is for deployed runs whose nodes have their own data (flower.data = "
                f'"nodes"); this run divides one data set. `fedblade list partitions` shows what there is.'
            )
        if self.entry is None:
            raise Misconfigured(
                f"this run got its {self.kind} from Python as an object. "
                f"To go on, pass the object to fedblade.run again."
            )
        return self.entry.build(*args, **self.knobs)

    @property
    def is_own(self) -> bool:
        """Whether the part is the user's: an object from Python, a reference to a file, or part of a plugin."""
        return self.entry is None or not self.entry.make.__module__.startswith("fedblade.")


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines the result of a run, except the data; and `notes` for the user."""

    general: General
    dataset: ChosenPart
    dataset_settings: DatasetSettings
    partition: ChosenPart
    partition_settings: PartitionSettings
    federation: Federation
    participation: ChosenPart
    model: ChosenPart
    model_settings: ModelSettings
    local: Local
    optimizer: Optimizer
    method: Composition
    method_knobs: Mapping[str, Any]
    evaluation: Evaluation
    stop: Stop
    checkpoint: Checkpoint
    distributed: Distributed
    notes: tuple[str, ...] = ()

    def build_method(self) -> Method:
        """The method with its knobs."""
        return self.method.build(self.method_knobs)

    @property
    def split_seed(self) -> int:
        """The seed that draws the split."""
        seed = self.partition_settings.seed
        return self.general.seed if seed == "auto" else seed

    def with_seed(self, seed: int) -> "RunConfig":
        """The same run with another seed."""
        return replace(self, general=validate(General, {**self.general.model_dump(), "seed": seed}, ""))

    def table(self) -> dict[str, Any]:
        """The configuration as nested tables, with every default."""
        named = {
            "dataset": {"name": self.dataset.name, **plain(self.dataset_settings), **plain(self.dataset.knobs)},
            "partition": {"name": self.partition.name, **plain(self.partition_settings), **plain(self.partition.knobs)},
            "participation": {"name": self.participation.name, **plain(self.participation.knobs)},
            "model": {"name": self.model.name, **plain(self.model_settings), **plain(self.model.knobs)},
            "method": {"name": self.method.name, **plain(self.method_knobs)},
        }
        fixed = {name: plain(getattr(self, name)) for name in FIXED}
        tables = named | fixed
        return {**plain(self.general), **{name: tables[name] for name in ORDER}}

    def to_toml(self) -> str:
        """The text of `config.toml`."""
        return tomli_w.dumps(self.table())


def complete_config(tables: Mapping[str, Any]) -> RunConfig:
    """Check nested tables (of a file, a preset or a run folder) and fill in every default."""
    if isinstance(notes := tables.get(NOTES), Notes):
        return replace(complete_config({key: tables[key] for key in tables if key != NOTES}), notes=tuple(notes))
    check_keys("", tables, (*General.model_fields, *ORDER))
    check_tables(tables)
    general = validate(General, {key: value for key, value in tables.items() if key in General.model_fields}, "")
    fixed: dict[str, Any] = {name: validate(model, tables.get(name, {}), name) for name, model in FIXED.items()}
    parts: dict[str, Any] = {}
    for kind in ("dataset", "partition", "model"):
        parts[kind], parts[f"{kind}_settings"] = _choose_part(kind, dict(tables.get(kind, {})))
    parts["participation"], _ = _choose_part("participation", {"name": UNIFORM, **tables.get("participation", {})})
    composition, knobs = _choose_method(dict(tables.get("method", {})))
    _check_cohort(fixed["federation"])
    return RunConfig(general=general, method=composition, method_knobs=knobs, **fixed, **parts)


def check_tables(tables: Mapping[str, Any]) -> None:
    """Refuse sections that are not tables, and names of parts that are not strings."""
    for name in (*ORDER, "methods"):
        table = tables.get(name, {})
        if not isinstance(table, Mapping):
            raise Misconfigured(f"{name} = {table!r} is not a table; expected keys under [{name}].")
        if name in NAMED and not isinstance(table.get("name", ""), str):
            raise Misconfigured(
                f"{name}.name is {table['name']!r}; expected a name. `fedblade list {name}s` shows what there is."
            )


def knob_tables(name: str) -> dict[str, Any]:
    """The knobs of a method with their defaults, as tables. Every added regulariser has its own table."""
    composition = compose(name)
    knobs = {key: plain(knob.default) for key, knob in composition.base.knobs().items()}
    for entry in composition.added:
        knobs[entry.name] = {key: plain(knob.default) for key, knob in entry.knobs().items()}
    return knobs


def is_registered(kind: str, name: str) -> bool:
    """Whether a registry should know the name; it does not know what comes from Python or from nodes."""
    return name != FROM_PYTHON and (kind, name) != ("partition", HELD_BY_NODES)


def _choose_part(kind: str, table: dict[str, Any]) -> tuple[ChosenPart, Section]:
    """The part that a section names with its checked knobs, and the checked settings of the section.

    If a knob and a setting have the same name, the key is the knob: `model.init` of a ResNet-20 is the ResNet's.
    """
    name = _name(kind, table)
    settings_model = NAMED[kind]
    entry = REGISTRIES[kind].get(name) if is_registered(kind, name) else None
    knobs = _knobs(entry) if entry else {}
    check_keys(kind, table, (*settings_model.model_fields, *knobs))
    keys = [key for key in settings_model.model_fields if key in table and key not in knobs]
    settings = validate(settings_model, {key: table[key] for key in keys}, kind)
    model = knob_model(name, knobs)
    checked = validate(model, {key: value for key, value in table.items() if key in knobs}, kind)
    chosen = ChosenPart(name, entry, {key: getattr(checked, key) for key in knobs}, kind)
    return chosen, _with_init(settings, chosen) if isinstance(settings, ModelSettings) else settings


def _with_init(settings: ModelSettings, model: ChosenPart) -> ModelSettings:
    """The settings with `init` "auto" replaced by "given" or "seed"."""
    if settings.init == "given" and not model.is_own:
        raise Misconfigured(
            f"model.init = 'given' is for a model of your own; model '{model.name}' is drawn for every seed. "
            f"Leave model.init out, or use fedblade.run(model=module) or model=file.py:function."
        )
    if settings.init != "auto":
        return settings
    return settings.model_copy(update={"init": "given" if model.is_own else "seed"})


def _choose_method(table: dict[str, Any]) -> tuple[Composition, dict[str, Any]]:
    name = _name("method", table)
    composition = compose(name)
    base, added = _knobs(composition.base), {entry.name: entry for entry in composition.added}
    for key in table:
        if key not in (*base, *added):
            raise Misconfigured(unknown_knob(f"method.{key}", name, (*base, *added)))
    checked = validate(knob_model(name, base), {key: value for key, value in table.items() if key in base}, "method")
    knobs: dict[str, Any] = {key: getattr(checked, key) for key in base}
    for key, entry in added.items():
        names = entry.knobs()
        regulariser = validate(knob_model(key, names), table.get(key, {}), f"method.{key}")
        knobs[key] = {name: getattr(regulariser, name) for name in names}
    return composition, knobs


def _knobs(entry: Entry) -> dict[str, inspect.Parameter]:
    """The knobs of a part. A default that TOML cannot hold is refused."""
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


def _name(kind: str, table: dict[str, Any]) -> str:
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise Misconfigured(f"{kind}.name is {name!r}; expected a name. `fedblade list {kind}s` shows what there is.")
    file, _, function = name.rpartition(":")
    # A file is stored by its absolute path, so that the run can go on from another folder.
    return f"{Path(file).resolve()}:{function}" if file.endswith(".py") else name


def _check_cohort(federation: Federation) -> None:
    if federation.clients_per_round > federation.num_clients:
        raise Misconfigured(
            f"federation.clients_per_round = {federation.clients_per_round} is more than federation.num_clients = "
            f"{federation.num_clients}. Lower it or raise num_clients."
        )
