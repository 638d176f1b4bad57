"""What a node says of its clients when it is greeted, checked before anything is built on it."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedblade._version import __version__
from fedblade.engines.nodes._in_short import in_short

_MOST_SAMPLES = 2**40
_MOST_CLASSES = 10**6
_MOST_AXES = 8
_MOST_VALUES = 2**27
"""Numbers of one sample: a volume of 512 in every direction."""
_LARGEST = 1e30
_TYPES = frozenset(np.dtype(code).name for code in "?bBhHiIqQefd")
Scaling = tuple[float, tuple[float, ...], tuple[float, ...]]
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


class Refused(Exception):
    """A greeting was answered with something that cannot be; the message says what, without naming the node."""


@dataclass(frozen=True)
class Holding:
    """What a client holds: its training samples per class, the shape of a sample, and how it is scaled and stored.

    `scaling` is (unit, mean, std) as in a data set, `dtype` the name of the stored type, `given_shape` the shape in
    which samples were given to the node, empty where that is the shape they have.
    `fixed` is the digest of the fixed tensors that its node made itself; where it is the server's, they are not sent.
    """

    counts: tuple[int, ...]
    input_shape: tuple[int, ...]
    scaling: Scaling
    dtype: str
    given_shape: tuple[int, ...]
    fixed: str = field(default="", compare=False)


def holdings_of(facts: Mapping[str, Any], num_clients: int, num_classes: int) -> dict[int, Holding]:
    """The clients that a node speaks for. `num_classes` 0 says that the number is not known here."""
    told = facts.get("clients")
    if not isinstance(told, Mapping) or not told:
        raise Refused("it does not say for which clients it speaks")
    return {_client(key, num_clients): _holding(key, each, num_classes) for key, each in told.items()}


def _client(key: object, num_clients: int) -> int:
    if not isinstance(key, str) or not _NUMBER.fullmatch(key) or int(key) >= num_clients:
        raise Refused(f"it speaks for client {in_short(key)}; the run has clients 0 to {num_clients - 1}")
    return int(key)


def _holding(key: str, told: object, num_classes: int) -> Holding:
    facts = told if isinstance(told, Mapping) else {}
    if facts.get("version") != __version__:
        raise Refused(f"it runs fedblade {in_short(facts.get('version'))}, the server {__version__}")
    counts: Any = facts.get("counts")
    shape: Any = facts.get("input_shape")
    if not _are_whole(counts, 0, _MOST_SAMPLES) or not 0 < len(counts) <= _MOST_CLASSES:
        raise Refused(f"client {key} says that it holds {in_short(counts)}; expected the number of samples per class")
    if num_classes and len(counts) != num_classes:
        raise Refused(f"client {key} counts samples of {len(counts)} classes; the run has {num_classes}")
    if not _are_whole(shape, 1, _MOST_SAMPLES) or not 0 < len(shape) <= _MOST_AXES:
        raise Refused(f"client {key} says that a sample has shape {in_short(shape)}; expected a list of sizes")
    if math.prod(shape) > _MOST_VALUES:
        raise Refused(f"client {key} says that a sample has shape {in_short(shape)}; more than {_MOST_VALUES} numbers")
    digest = facts.get("fixed")
    return Holding(
        tuple(counts),
        tuple(shape),
        _scaling(key, facts.get("scaling"), shape[0]),
        _dtype(key, facts.get("dtype")),
        _given_shape(key, facts.get("given_shape"), shape),
        digest if isinstance(digest, str) else "",
    )


def _scaling(key: str, told: Any, channels: int) -> Scaling:
    """Unit, mean and std, for all channels together or for each."""
    match told:
        case [unit, list(mean), list(std)] if all(map(_is_number, (unit, *mean, *std))):
            if unit > 0 and all(each > 0 for each in std) and {len(mean), len(std)} <= {1, channels}:
                return float(unit), tuple(map(float, mean)), tuple(map(float, std))
    raise Refused(f"client {key} says that samples are scaled by {in_short(told)}; expected unit, mean and std")


def _dtype(key: str, told: object) -> str:
    if not isinstance(told, str) or told not in _TYPES:
        raise Refused(f"client {key} says that samples are of type {in_short(told)}; expected a type of numbers")
    return told


def _given_shape(key: str, told: object, shape: list[int]) -> tuple[int, ...]:
    """The shape before a channel axis was added or brought to the front, or nothing."""
    without_channels = [shape[1:]] if shape[0] == 1 else []
    if told not in ([], [*shape[1:], shape[0]], *without_channels):
        raise Refused(f"client {key} says that samples were given as {in_short(told)}; expected another order of axes")
    return tuple(told) if isinstance(told, list) else ()


def _is_number(given: Any) -> bool:
    return type(given) in (int, float) and bool(-_LARGEST < given < _LARGEST)


def _are_whole(given: Any, low: int, high: int) -> bool:
    return isinstance(given, list) and all(type(each) is int and low <= each <= high for each in given)
