"""Checking raw tables against types, with errors that name the key, the value, what was expected and what is near."""

import dataclasses
import inspect
import json
import types
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from fedblade.config.literals import literal
from fedblade.core.errors import Misconfigured, nearest

M = TypeVar("M", bound=BaseModel)


def check_keys(path: str, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse keys that do not exist, with the nearest one that does."""
    known = list(allowed)
    for key in given:
        if key not in known:
            where = f"{path}.{key}" if path else key
            raise Misconfigured(f"unknown key '{where}'.{nearest(key, known)}")


def no_knob(key: str, method: str, knobs: Iterable[str]) -> str:
    """What to say of a key that is no knob of the method: the nearest it has, all it has, or that it has none."""
    knob, known = key.removeprefix("method."), list(knobs)
    end = f".{nearest(knob, known)}" if known else "; it has none."
    return f"unknown key '{key}': method '{method}' has no knob '{knob}'{end}"


def validate(model: type[M], raw: Mapping[str, Any], path: str) -> M:
    """`raw` as a checked `model`. Types are strict: a string is no number, true is no 1."""
    check_keys(path, raw, model.model_fields)
    complete = {key: _completed(model.model_fields[key], value, f"{path}.{key}") for key, value in raw.items()}
    try:
        return model.model_validate_json(json.dumps(plain(complete)), strict=True)
    except ValidationError as error:
        raise Misconfigured(_explain(error, path, complete)) from error


def knob_model(name: str, knobs: Mapping[str, inspect.Parameter]) -> type[BaseModel]:
    """A model whose fields are a part's knobs with their types and defaults."""
    empty = inspect.Parameter.empty
    fields: dict[str, Any] = {
        key: (Any if knob.annotation is empty else knob.annotation, knob.default) for key, knob in knobs.items()
    }
    config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)
    return create_model(name, __config__=config, **fields)


def plain(value: Any) -> Any:
    """Mappings, dataclasses and models as plain dictionaries, tuples as lists, for TOML and JSON."""
    if isinstance(value, BaseModel):
        return {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _completed(field: FieldInfo, value: Any, path: str) -> Any:
    """A table given in part, filled up from the knob's own default, which may differ from its type's."""
    table = _dataclass_in(field.annotation)
    if table is None or not isinstance(value, Mapping):
        return value
    check_keys(path, value, [each.name for each in dataclasses.fields(table)])
    return {**plain(field.default), **value} if isinstance(field.default, table) else value


def _dataclass_in(annotation: Any) -> type | None:
    """The dataclass an annotation names, alone or in a union."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((each for each in options if isinstance(each, type) and dataclasses.is_dataclass(each)), None)


def _explain(error: ValidationError, path: str, raw: Mapping[str, Any]) -> str:
    """The first offending key in one line; the alternatives of a union are joined."""
    problems = error.errors(include_url=False)
    keys = _known_prefix(problems[0]["loc"], raw)
    where = ".".join((*([path] if path else []), *keys))
    same = [p for p in problems if _known_prefix(p["loc"], raw) == keys]
    cause = same[0].get("ctx", {}).get("error")
    if isinstance(cause, Misconfigured):
        return str(cause)
    wanted = " or ".join(dict.fromkeys(p["msg"].removeprefix("Input should be ").rstrip(".") for p in same))
    given: Any = raw
    for key in keys:
        given = given[key]
    return f"{where} = {literal(plain(given))} is not allowed; expected {wanted}."


def _known_prefix(location: tuple[int | str, ...], raw: Any) -> tuple[str, ...]:
    """The part of an error's location that the user wrote; the rest names alternatives of a union."""
    keys: list[str] = []
    for step in location:
        if not isinstance(raw, Mapping) or step not in raw:
            break
        keys.append(str(step))
        raw = raw[step]
    return tuple(keys)
