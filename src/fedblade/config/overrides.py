"""Short keys on the command line and in Python: `rounds=12`, `alpha=0.05`, `method=fedprox`, `local.epochs=1`."""

import copy
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from fedblade.config.aliases import ALIASES, alias_names, key_of
from fedblade.config.hints import SEARCH, is_method_knob, meant, section_as_key, similar_knob
from fedblade.config.population import clients_from_python, settle_population
from fedblade.config.run_config import FROM_PYTHON, check_tables, is_registered, knob_tables
from fedblade.config.schema import FIXED, NAMED, General
from fedblade.config.settings import REGISTRIES, Raw, merge, setting, without_knobs
from fedblade.config.validation import unknown_knob
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import methods
from fedblade.core.words import listing

_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?")
"""A number with a point. TOML reads those with digits on both sides of the point."""


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read `key=value` with a TOML value, or a number such as `.02` or `2.`, which TOML does not allow.

    Any other value that is not TOML is a string, so `method=fedavg` needs no quotes.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Misconfigured(f"'{text}' is not an assignment; expected key=value, such as --set rounds=12.")
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), float(value) if _NUMBER.fullmatch(value.strip()) else value.strip()


def apply_overrides(tables: Mapping[str, Any], overrides: Mapping[str, Any]) -> Raw:
    """The tables with the overrides set. Names of parts are set first, because they decide which knobs exist."""
    check_tables(tables)
    for key, value in overrides.items():
        _refuse_other_than_text(key, value)
    config: Raw = copy.deepcopy(dict(tables))
    per_method = config.pop("methods", {})
    others = dict(overrides)
    clients = clients_from_python(others)
    for kind in NAMED:
        names = [others.pop(key) for key in name_keys(kind) if key in others]
        if names:
            _choose_part(config, kind, names[-1], per_method)
    if "method" in config and not any(key in overrides for key in name_keys("method")):
        preset = per_method.get(config["method"].get("name"), {})
        config["method"] = merge({**preset, "name": config["method"].get("name")}, config["method"])
    paths = {full_key(config, key): value for key, value in others.items()}
    for path, value in paths.items():
        _set(config, path, "none" if value is None else value)
    _refuse_unused_epochs(config, paths)
    named = {kind for kind in NAMED if any(key in overrides for key in name_keys(kind))}
    settle_population(tables, config, paths.keys() | named, clients)
    return config


def name_keys(kind: str) -> tuple[str, ...]:
    """The keys that name the part of a section: `method`, `method.name` and aliases."""
    return (kind, f"{kind}.name", *ALIASES.get(kind, ()))


def _refuse_other_than_text(key: str, value: Any) -> None:
    """Refuse a key or a value from the command line that is not UTF-8, such as some names of files."""
    try:
        f"{key}{value}".encode()
    except UnicodeEncodeError as error:
        raise Misconfigured(
            f"{key!a} = {value!a} is not UTF-8 text, and a configuration is. Give a file a name in UTF-8."
        ) from error


def full_key(config: Mapping[str, Any], key: str) -> str:
    """The dotted key that a short key means: exact, or unique in the fixed sections or among the method's knobs.

    A key that matches nothing may be an alias.
    """
    fixed = dict(_fixed_paths(config))
    method = dict(_method_paths(config))
    alias = key_of(key)
    if alias in fixed and not any(key in (path, last) for path, last in (*fixed.items(), *method.items())):
        return str(alias)
    if "." in key:
        matches = [path for path in (*fixed, *method) if path == key or path.endswith(f".{key}")]
        return _single_match(config, key, matches, [*fixed, *method])
    if key in General.model_fields:
        return key
    matches = [path for path, last in fixed.items() if last == key]
    matches = matches or [path for path, last in method.items() if last == key]
    return _single_match(config, key, matches, [*General.model_fields, *NAMED, *fixed.values(), *method.values()])


def _refuse_unused_epochs(config: Mapping[str, Any], keys: Collection[str]) -> None:
    """Refuse to set `local.epochs` if `local.steps` is set, because the steps then decide."""
    steps = setting(config, "local.steps")
    if "local.epochs" in keys and steps != "none":
        raise Misconfigured(
            f"local.epochs has no effect while local.steps={steps}. Set local.steps instead, or set local.steps=none."
        )


def _single_match(config: Mapping[str, Any], key: str, matches: list[str], known: list[str]) -> str:
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise Misconfigured(_unknown_key(config, key, known))
    raise Misconfigured(f"key '{key}' could mean {' or '.join(matches)}. Write the full path.")


def _unknown_key(config: Mapping[str, Any], key: str, known: list[str]) -> str:
    """The error for an unknown key: what it was meant to be, or the nearest key, or the knobs of the method."""
    method = config.get("method", {}).get("name")
    section, dot, _ = key.partition(".")
    if key in FIXED:
        return section_as_key(key)
    if method and dot and section == "method":
        return unknown_knob(key, method, (path.removeprefix("method.") for path, _ in _method_paths(config)))
    known_elsewhere = meant(key)
    in_section = [path for path in known if dot and path.startswith(f"{section}.")]
    if not method or (known_elsewhere and not is_method_knob(key)):
        return f"unknown key '{key}'{known_elsewhere or '.' + nearest(key, set(in_section or known))}"
    if known_elsewhere:
        return unknown_knob(key, method, knob_tables(method))
    if in_section:
        return f"unknown key '{key}'.{nearest(key, in_section)}"
    close = get_close_matches(key, [*known, *alias_names()])
    if close:
        where = _where(config, close[0])
        return f"unknown key '{key}'. Did you mean '{close[0]}'{where}?{f' {SEARCH}.' if where else ''}"
    knobs = list(knob_tables(method))
    has = f"the knob{'s' if len(knobs) > 1 else ''} {listing(knobs)}" if knobs else "no knobs"
    return f"unknown key '{key}': no section has it, and method '{method}' has {has}.{similar_knob(key)} {SEARCH}."


def _where(config: Mapping[str, Any], key: str) -> str:
    """The full key of a short one or of an alias, in brackets; empty if the key is written in full."""
    known = (*_fixed_paths(config), *_method_paths(config), (key_of(key) or key, key))
    paths = [path for path, last in known if last == key and path != key]
    return f" ({' or '.join(paths)})" if paths else ""


def _choose_part(config: Raw, kind: str, name: Any, per_method: Mapping[str, Any]) -> None:
    """Set the name of a part: settings of the section stay, knobs of the old part go, a preset's knobs are added."""
    name = _name_of(kind, name)
    settings = without_knobs(kind, config.get(kind, {}))
    preset = copy.deepcopy(per_method.get(name, {})) if kind == "method" else {}
    config[kind] = {"name": name, **settings, **preset}


def _name_of(kind: str, given: Any) -> str:
    """The name of a part. A function of the user stands for the name that it was registered with."""
    registry = methods if kind == "method" else REGISTRIES[kind]
    name = registry.name_of(given) if callable(given) else given
    if isinstance(name, str):
        return name
    raise Misconfigured(
        f"{kind} = {given!r:.80} is not a name. `fedblade list {kind}s` shows what there is. A {kind} of your own is a "
        f"function: write it into a file and give {kind}='file.py:function', or register it with "
        f"fedblade.api.register_{kind}('my_name')(function) and give {kind}='my_name'."
    )


def _fixed_paths(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted keys and their last part: of the fixed sections, and of the data set, the partition and the model."""
    for section, model in FIXED.items():
        yield from ((f"{section}.{key}", key) for key in model.model_fields)
    for kind, settings in NAMED.items():
        if kind == "method":
            continue
        name = config.get(kind, {}).get("name", FROM_PYTHON)
        knobs = REGISTRIES[kind].get(name).knobs() if is_registered(kind, name) else ()
        yield from ((f"{kind}.{key}", key) for key in (*settings.model_fields, *knobs))


def _method_paths(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted keys and their last part: of the method's knobs, and of the tables that hold knobs."""

    def walk(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for key, value in table.items():
            yield f"{prefix}.{key}", key
            if isinstance(value, Mapping):
                yield from walk(f"{prefix}.{key}", value)

    name = config.get("method", {}).get("name")
    if name is not None:
        yield from walk("method", knob_tables(name))


def _set(config: Raw, path: str, value: Any) -> None:
    *sections, last = path.split(".")
    table = config
    for section in sections:
        table = table.setdefault(section, {})
    if isinstance(value, Mapping) and isinstance(table.get(last), Mapping):
        value = merge(table[last], value)
    table[last] = value
