"""What an unknown key was meant to be: another name of a key, a key of another section, a knob of another part."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from fedblade.config.aliases import INSTEAD, key_of
from fedblade.config.schema import FIXED, NAMED, General
from fedblade.config.settings import REGISTRIES
from fedblade.core.errors import nearest
from fedblade.core.registry import methods, regularisers
from fedblade.core.words import listing, short_listing

SEARCH = "`fedblade list settings WORD` finds a setting"


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """The error for a key of a section that does not have it; `allowed` are the keys of this section."""
    keys = list(allowed)
    name = key.rpartition(".")[2]
    return f"unknown key '{key}'{meant(key) or '.' + nearest(name, keys)}"


def section_as_key(section: str) -> str:
    """The error for the name of a section where a key is expected."""
    keys = [f"{section}.{key}" for key in FIXED[section].model_fields]
    return f"unknown key '{section}': it is a section. Its keys are {listing(keys)}."


def meant(key: str) -> str:
    """The end of an error that says what an unknown key was meant to be; empty if nothing has its name."""
    name = key.rpartition(".")[2]
    if name in INSTEAD:
        return f": {INSTEAD[name]}."
    alias = key_of(name)
    if alias is not None:
        knob = "" if alias in _homes(alias.rpartition(".")[2]) else owners(alias)
        return f": '{name}' is another name of {alias}. Write {alias}.{knob.removeprefix(':')}"
    homes = [home for home in _homes(name) if home != key]
    if homes:
        return f": '{name}' belongs to {_sections(homes)}. Write {' or '.join(homes)}."
    return owners(name)


def is_method_knob(key: str) -> bool:
    """Whether a method or a regulariser has a knob of this name, and no section that every run has."""
    return not _homes(key.rpartition(".")[2]) and any(
        names for kind, names in _parts_with(key.rpartition(".")[2]) if kind in ("method", "regulariser")
    )


def owners(key: str) -> str:
    """The end of an error that names the parts with a knob of this name; empty if no part has one."""
    name = key.rpartition(".")[2]
    found = [
        f"{kind}{'s' if len(names) > 1 else ''} {short_listing(names)}" for kind, names in _parts_with(name) if names
    ]
    return f": '{name}' is a knob of {'; of '.join(found)}." if found else ""


def similar_knob(key: str) -> str:
    """A sentence on the parts with a knob that is spelled almost like the key; empty if there is none."""
    registries = {**REGISTRIES, "method": methods, "regulariser": regularisers}.values()
    knobs = {knob for registry in registries for entry in registry.entries() for knob in entry.knobs()}
    close = get_close_matches(key, knobs, n=1, cutoff=0.8)
    return owners(close[0]).removeprefix(":") if close else ""


def _homes(name: str) -> list[str]:
    """The dotted keys of this name in the sections that every run has."""
    general = [name] if name in General.model_fields else []
    return general + [f"{section}.{name}" for section, keys in (FIXED | NAMED).items() if name in keys.model_fields]


def _sections(keys: Sequence[str]) -> str:
    places = [f"[{key.rpartition('.')[0]}]" if "." in key else "no section" for key in keys]
    return " and ".join(places)


def _parts_with(name: str) -> Iterator[tuple[str, list[str]]]:
    """By kind, the parts that have a knob of this name."""
    for kind, registry in (REGISTRIES | {"method": methods, "regulariser": regularisers}).items():
        yield kind, [entry.name for entry in registry.entries() if name in entry.knobs()]
