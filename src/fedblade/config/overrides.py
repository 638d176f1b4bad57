"""Short keys on the command line and in Python: `rounds=12`, `alpha=0.05`, `method=fedprox`, `local.epochs=1`."""

import copy
import tomllib
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_origin

from fedblade.config.run_config import FROM_PYTHON, check_tables, knob_tables
from fedblade.config.schema import FIXED, NAMED, General
from fedblade.config.settings import REGISTRIES, setting, without_knobs
from fedblade.config.validation import no_knob
from fedblade.core.errors import Misconfigured, nearest

Raw = dict[str, Any]


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` with a TOML value; what is not TOML is taken as a string, so `method=fedavg` needs no quotes."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Misconfigured(f"'{text}' is not an assignment; expected key=value, such as --set rounds=12.")
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def apply_overrides(raw: Mapping[str, Any], overrides: Mapping[str, Any]) -> Raw:
    """`raw` with overrides put in. Parts are chosen first, because they decide which knobs exist."""
    check_tables(raw)
    config: Raw = copy.deepcopy(dict(raw))
    per_method = config.pop("methods", {})
    rest = dict(overrides)
    for kind in NAMED:
        chosen = [rest.pop(key) for key in (kind, f"{kind}.name") if key in rest]
        if chosen:
            _choose(config, kind, chosen[-1], per_method)
    if "method" in config and not any(key in overrides for key in ("method", "method.name")):
        preset = per_method.get(config["method"].get("name"), {})
        config["method"] = _merged({**preset, "name": config["method"].get("name")}, config["method"])
    paths = {find(config, key): value for key, value in rest.items()}
    for path, value in paths.items():
        _put(config, path, _listed(path, value))
    _refuse_idle_epochs(config, paths)
    return config


def find(config: Mapping[str, Any], key: str) -> str:
    """The full path a key stands for: exact, unique among the fixed sections, or unique among the method's knobs."""
    fixed = dict(_fixed_paths(config))
    method = dict(_method_paths(config))
    if "." in key:
        matches = [path for path in (*fixed, *method) if path == key or path.endswith(f".{key}")]
        return _only(config, key, matches, [*fixed, *method])
    if key in General.model_fields:
        return key
    matches = [path for path, last in fixed.items() if last == key]
    matches = matches or [path for path, last in method.items() if last == key]
    return _only(config, key, matches, [*General.model_fields, *NAMED, *fixed.values(), *method.values()])


def _refuse_idle_epochs(config: Mapping[str, Any], given: Collection[str]) -> None:
    """Refuse to set epochs that no client trains: a number of steps takes their place."""
    steps = setting(config, "local.steps")
    if "local.epochs" in given and steps != "none":
        raise Misconfigured(
            f"local.epochs has no effect while local.steps={steps}. Set local.steps instead, or set local.steps=none."
        )


def _only(config: Mapping[str, Any], key: str, matches: list[str], known: list[str]) -> str:
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise Misconfigured(_unknown(config, key, known))
    raise Misconfigured(f"key '{key}' could mean {' or '.join(matches)}. Write the full path.")


def _unknown(config: Mapping[str, Any], key: str, known: list[str]) -> str:
    """What to say of a key that means nothing: like no setting, it was meant as a knob of the method."""
    method = config.get("method", {}).get("name")
    section, dot, _ = key.partition(".")
    if method and dot and section == "method":
        return no_knob(key, method, (path.removeprefix("method.") for path, _ in _method_paths(config)))
    in_section = [path for path in known if dot and path.startswith(f"{section}.")]
    if not method or in_section or get_close_matches(key, known):
        return f"unknown key '{key}'.{nearest(key, set(in_section or known))}"
    return no_knob(key, method, knob_tables(method))


def _choose(config: Raw, kind: str, name: Any, per_method: Mapping[str, Any]) -> None:
    """Replace a section by the part's defaults, the preset's overrides for a method, and the section's settings."""
    if not isinstance(name, str):
        raise Misconfigured(f"{kind} = {name!r} is not a name. `fedblade list {kind}s` shows what there is.")
    settings = without_knobs(kind, config.get(kind, {}))
    own = copy.deepcopy(per_method.get(name, {})) if kind == "method" else {}
    config[kind] = {"name": name, **settings, **own}


def _fixed_paths(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for section, model in FIXED.items():
        yield from ((f"{section}.{key}", key) for key in model.model_fields)
    for kind, settings in NAMED.items():
        if kind == "method":
            continue
        name = config.get(kind, {}).get("name", FROM_PYTHON)
        knobs = () if name == FROM_PYTHON else REGISTRIES[kind].get(name).knobs()
        yield from ((f"{kind}.{key}", key) for key in (*settings.model_fields, *knobs))


def _method_paths(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    def walk(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for key, value in table.items():
            yield f"{prefix}.{key}", key
            if isinstance(value, Mapping):
                yield from walk(f"{prefix}.{key}", value)

    name = config.get("method", {}).get("name")
    if name is not None:
        yield from walk("method", knob_tables(name))


def _put(config: Raw, path: str, value: Any) -> None:
    *sections, last = path.split(".")
    table = config
    for section in sections:
        table = table.setdefault(section, {})
    if isinstance(value, Mapping) and isinstance(table.get(last), Mapping):
        value = _merged(table[last], value)
    table[last] = value


def _listed(path: str, value: Any) -> Any:
    """A name given where a fixed section takes a list of names, as that list: `metrics=nc1,nc2`."""
    section, _, key = path.partition(".")
    field = FIXED[section].model_fields.get(key) if section in FIXED else None
    if isinstance(value, str) and field is not None and get_origin(field.annotation) is list:
        return [name.strip() for name in value.split(",")]
    return value


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Raw:
    """Tables merged key by key, `above` winning."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return merged
