"""Every setting there is, with its section, type, default, meaning and aliases, read from the schema and the parts."""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from fedblade.config.aliases import ALIASES
from fedblade.config.knob_words import MEANINGS
from fedblade.config.literals import literal
from fedblade.config.run_config import UNIFORM, RunConfig
from fedblade.config.schema import FIXED, NAMED, ORDER, General, Section
from fedblade.config.settings import REGISTRIES
from fedblade.config.validation import plain
from fedblade.core.registry import Entry, Registry, methods, regularisers

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
_BOUNDS = {Gt: ("gt", "above"), Ge: ("ge", "at least"), Lt: ("lt", "below"), Le: ("le", "at most")}
_LARGEST = 2**31
_NAMES = {
    "dataset": "The data set: a name of `fedblade list datasets`, or file.py:function.",
    "partition": "Who holds which samples: a name of `fedblade list partitions`, or file.py:function.",
    "participation": "Who trains in a round: a name of `fedblade list participations`, or file.py:function.",
    "model": "The model: a name of `fedblade list models`, or file.py:function.",
    "method": "The method: a name of `fedblade list methods`, combined as in fedprox+feddecorr, or file.py:function.",
}


@dataclass(frozen=True)
class Setting:
    """One setting. A knob belongs to a `part`, such as method `fedprox`; a setting without a part is always there.

    A setting without a default, such as the name of the method, has None. The part `+feddecorr` is a regulariser; its
    knobs are in a table with its name: `method.feddecorr.lambda_decorr`.
    """

    name: str
    section: str
    type: str
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    part: str = ""

    @property
    def key(self) -> str:
        """The last part of the dotted name."""
        return self.name.rpartition(".")[2]


def all_settings() -> list[Setting]:
    """Every setting: those outside tables, then section by section those that are always there, then the knobs."""
    return [*fixed_settings(), *knob_settings()]


def fixed_settings() -> list[Setting]:
    """The settings that every run has, in the order of a configuration file."""
    settings = list(_of_section("", General))
    for section in ORDER:
        settings += _of_section(section, FIXED[section]) if section in FIXED else _of_kind(section)
    return settings


def knob_settings() -> list[Setting]:
    """The knobs of all parts that a configuration can name."""
    settings: list[Setting] = []
    for kind in ORDER:
        registry: Registry | None = methods if kind == "method" else REGISTRIES.get(kind)
        for entry in registry.entries() if registry else ():
            settings += _of_part(kind, entry, kind)
    for entry in regularisers.entries():
        settings += _of_part("method", entry, f"method.{entry.name}")
    return settings


def settings_of(config: RunConfig) -> list[Setting]:
    """The knobs of the parts of one configuration, those of users' own parts among them."""
    entries = {kind: getattr(config, kind).entry for kind in REGISTRIES}
    settings = [setting for kind, entry in entries.items() if entry for setting in _of_part(kind, entry, kind)]
    return settings + (method_settings(config.method.base, config.method.added) if config.method.base else [])


def method_settings(base: Entry, added: Sequence[Entry]) -> list[Setting]:
    """The knobs of a method and of the regularisers that are added to it."""
    settings = list(_of_part("method", base, "method"))
    for entry in added:
        settings += _of_part("method", entry, f"method.{entry.name}")
    return settings


def _of_kind(kind: str) -> Iterator[Setting]:
    """The name of a part, and the settings that any part of the kind has."""
    default = UNIFORM if kind == "participation" else None
    yield Setting(f"{kind}.name", kind, "text", default, _NAMES[kind], ALIASES.get(kind, ()))
    yield from _of_section(kind, NAMED[kind])


def _of_section(section: str, model: type[Section]) -> Iterator[Setting]:
    for key, field in model.model_fields.items():
        name = f"{section}.{key}" if section else key
        text = type_text(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        yield Setting(
            name,
            section,
            text,
            plain(field.default),
            " ".join((field.description or "").split()),
            ALIASES.get(name, ()),
        )


def _of_part(kind: str, entry: Entry, table: str) -> Iterator[Setting]:
    """The knobs of a part; a knob that is a table has a setting for each of its keys."""
    part = entry.name if table == kind else f"+{entry.name}"
    for key, knob in entry.knobs().items():
        for path, annotation, default in _leaves(f"{table}.{key}", knob.annotation, plain(knob.default)):
            meaning, aliases = _meaning(path.removeprefix(f"{table}."), entry), ALIASES.get(path, ())
            yield Setting(path, kind, type_text(annotation), default, meaning, aliases, part)


def _leaves(path: str, annotation: Any, default: Any) -> Iterator[tuple[str, Any, Any]]:
    """Dotted key, type and default: of the knob, or of every key of a knob that is a table."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type) and isinstance(default, Mapping):
        hints = get_type_hints(annotation, include_extras=True)
        for key, value in default.items():
            yield from _leaves(f"{path}.{key}", hints[key], value)
    else:
        yield path, annotation, default


def _meaning(key: str, entry: Entry) -> str:
    """The words for this knob of the part, or the sentences of the docstring that name it, or words for the name."""
    if f"{entry.name}:{key}" in MEANINGS:
        return MEANINGS[f"{entry.name}:{key}"]
    text = " ".join((inspect.getdoc(entry.make) or "").split())
    sentences = re.split(r"(?<=[.:]) (?=[A-Z`])", text)
    named = [sentence for sentence in sentences if f"`{key}`" in sentence or f"`{key} =" in sentence]
    return " ".join(named) or MEANINGS.get(key) or f"A knob of {entry.name}: {entry.summary}"


def type_text(annotation: Any) -> str:
    """A type in words: `whole number above 0`, `"auto" or number`."""
    origin, options = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [text for rule in options[1:] for text in _bounds(rule)]
        return " ".join((type_text(options[0]), " and ".join(bounds))).strip()
    if origin is Literal:
        return " or ".join(map(literal, options))
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_text, options))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"list of {type_text(options[0])}"
    return _WORDS.get(annotation, "value")


def _bounds(rule: Any) -> Iterator[str]:
    """The bounds of a rule, or of the rules inside a pydantic field. The largest count is not worth a word."""
    for inner in getattr(rule, "metadata", (rule,)):
        if type(inner) in _BOUNDS:
            attribute, word = _BOUNDS[type(inner)]
            bound = getattr(inner, attribute)
            if bound != _LARGEST:
                yield f"{word} {bound:g}"
