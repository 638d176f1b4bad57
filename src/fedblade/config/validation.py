"""Check tables against types. Errors name the key, the value, what was expected and the nearest valid key."""

import dataclasses
import inspect
import json
import types
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from fedblade.config.hints import owners, unknown_key
from fedblade.config.literals import literal
from fedblade.core.errors import Misconfigured, nearest

M = TypeVar("M", bound=BaseModel)
_MOST_EXACT = 2**53
"""Up to here every whole number is a float of its own."""
_IN_A_FILE = {
    "a valid array": "a list, such as [64, 32]",
    "a valid string": "a text",
    "a valid boolean": "true or false",
}


def check_keys(path: str, table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse unknown keys, and say what was meant."""
    valid = list(allowed)
    for key in table:
        if key not in valid:
            raise Misconfigured(unknown_key(f"{path}.{key}" if path else key, valid))


def unknown_knob(key: str, method: str, knobs: Iterable[str]) -> str:
    """The error for a key that is no knob of the method: the method's knobs, and parts that have such a knob."""
    knob, valid = key.removeprefix("method."), list(knobs)
    end = f".{nearest(knob, valid)}" if valid else "; it has none."
    elsewhere = owners(knob).removeprefix(":")
    return f"unknown key '{key}': method '{method}' has no knob '{knob}'{end}{elsewhere}"


def validate(model: type[M], table: Mapping[str, Any], path: str) -> M:
    """Check a table against a `model`. Types are strict: a string is not a number, and true is not 1."""
    check_keys(path, table, model.model_fields)
    _refuse_objects(table, path)
    complete = {key: _with_defaults(model.model_fields[key], value, f"{path}.{key}") for key, value in table.items()}
    try:
        try:
            return _checked(model, complete)
        except ValidationError as error:
            return _checked(model, _with_whole_numbers(error, complete))
    except ValidationError as error:
        raise Misconfigured(_explain(error, path, complete)) from error


def _checked(model: type[M], table: Mapping[str, Any]) -> M:
    return model.model_validate_json(json.dumps(plain(table)), strict=True)


def _refuse_objects(table: Mapping[str, Any], path: str) -> None:
    """Refuse values that no configuration file can hold, such as a tensor."""
    for key, value in table.items():
        try:
            json.dumps(plain(value))
        except (TypeError, ValueError) as error:
            raise Misconfigured(
                f"{path}.{key}".lstrip(".") + f" is an object of type {type(value).__name__}; expected what a "
                f"configuration file can hold: a number, a text, true or false, or a list."
            ) from error


def _with_whole_numbers(error: ValidationError, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table with `1e3` as 1000 where a whole number was expected. The error is raised again if nothing changes."""
    floats = [key for key, value in table.items() if isinstance(value, float) and value.is_integer()]
    expected = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["type"] == "int_type"}
    whole = {key: int(table[key]) for key in floats if key in expected and abs(table[key]) <= _MOST_EXACT}
    if not whole:
        raise error
    return {**table, **whole}


def knob_model(name: str, knobs: Mapping[str, inspect.Parameter]) -> type[BaseModel]:
    """A model whose fields are the knobs of a part, with types and defaults."""
    empty = inspect.Parameter.empty
    fields: dict[str, Any] = {
        key: (Any if knob.annotation is empty else knob.annotation, knob.default) for key, knob in knobs.items()
    }
    config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)
    return create_model(name, __config__=config, **fields)


def plain(value: Any) -> Any:
    """A value for TOML and JSON: mappings, dataclasses and models as dictionaries, tuples as lists."""
    if isinstance(value, BaseModel):
        return {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _with_defaults(field: FieldInfo, value: Any, path: str) -> Any:
    """A table with the missing keys of the knob's default. This default may differ from the defaults of its type."""
    table = _dataclass_in(field.annotation)
    if table is None or not isinstance(value, Mapping):
        return value
    check_keys(path, value, [entry.name for entry in dataclasses.fields(table)])
    return {**plain(field.default), **value} if isinstance(field.default, table) else value


def _dataclass_in(annotation: Any) -> type | None:
    """The dataclass in an annotation, alone or in a union; None if there is none."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)), None)


def _explain(error: ValidationError, path: str, table: Mapping[str, Any]) -> str:
    """The first wrong key in one line. The alternatives of a union are joined."""
    problems = error.errors(include_url=False)
    keys = _written_keys(problems[0]["loc"], table)
    where = ".".join((*([path] if path else []), *keys))
    same = [problem for problem in problems if _written_keys(problem["loc"], table) == keys]
    cause = same[0].get("ctx", {}).get("error")
    if isinstance(cause, Misconfigured):
        return str(cause)
    expected = [_expected(problem["msg"]) for problem in same]
    value: Any = table
    for key in keys:
        value = value[key]
    return f"{where} = {literal(plain(value))} is not allowed; expected {' or '.join(dict.fromkeys(expected))}."


def _expected(message: str) -> str:
    """What pydantic expects, in the words of a configuration file."""
    expected = message.removeprefix("Input should be ").rstrip(".")
    return _IN_A_FILE.get(expected, expected)


def _written_keys(location: tuple[int | str, ...], table: Any) -> tuple[str, ...]:
    """The keys of an error's location that the user wrote. The rest of the location names alternatives of a union."""
    keys: list[str] = []
    for step in location:
        if not isinstance(table, Mapping) or step not in table:
            break
        keys.append(str(step))
        table = table[step]
    return tuple(keys)
