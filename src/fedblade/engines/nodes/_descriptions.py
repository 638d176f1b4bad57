"""How a node describes its clients' data when it is greeted; every value is checked before it is used."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedblade.core.untrusted_text import is_number, short_repr
from fedblade.engines.nodes._protocol import protocol_difference

_MAX_SAMPLES = 2**40
_MAX_CLASSES = 10**6
_MAX_AXES = 8
_MAX_VALUES = 2**27
"""Numbers of one sample: a volume with 512 points along each of three axes."""
_LARGEST_NUMBER = 1e30
_DTYPES = frozenset(np.dtype(code).name for code in "?bBhHiIqQefd")
Scaling = tuple[float, tuple[float, ...], tuple[float, ...]]
_SALTED_DIGEST = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")
_CLIENT_ID = re.compile(r"0|[1-9][0-9]{0,17}")


class InvalidDescription(Exception):
    """A node's answer to its greeting is refused; the message says why, without naming the node."""


@dataclass(frozen=True)
class ClientDescription:
    """A client's data: training samples per class, the shape of a sample, its scaling and its stored type.

    `scaling` is (unit, mean, std) as in a data set. `dtype` names the stored type. `given_shape` is the shape in which
    samples were given to the node; it is empty if that is `input_shape`. `fixed` is the digest of the fixed tensors
    that the node made itself; the server does not send them if its digest is the same. `test_samples` are the samples
    on which the node measures the global model; 0 if the server has the test set. `salted_digest` is the digest of
    the samples with the node's salt, after a name of the salt.
    """

    counts: tuple[int, ...]
    input_shape: tuple[int, ...]
    scaling: Scaling
    dtype: str
    given_shape: tuple[int, ...]
    test_samples: int
    salted_digest: str = field(compare=False)
    fixed: str = field(default="", compare=False)


def read_descriptions(
    facts: Mapping[str, Any], num_clients: int, greeting: Mapping[str, Any]
) -> dict[int, ClientDescription]:
    """The clients of a node by id.

    The `greeting` says what they have to fit: `num_classes`, 0 if the server does not know it, and the `revisions` of
    the parts of the run.
    """
    clients = facts.get("clients")
    if not isinstance(clients, Mapping) or not clients:
        raise InvalidDescription("it does not say for which clients it speaks")
    return {
        _client_id(key, num_clients): _description(key, client_facts, greeting) for key, client_facts in clients.items()
    }


def _client_id(key: object, num_clients: int) -> int:
    if not isinstance(key, str) or not _CLIENT_ID.fullmatch(key) or int(key) >= num_clients:
        raise InvalidDescription(f"it speaks for client {short_repr(key)}; the run has clients 0 to {num_clients - 1}")
    return int(key)


def _description(key: str, given: object, greeting: Mapping[str, Any]) -> ClientDescription:
    facts = given if isinstance(given, Mapping) else {}
    difference = protocol_difference(facts, "it", "the coordinator")
    if difference is not None:
        raise InvalidDescription(difference)
    _check_revisions(facts.get("revisions"), greeting.get("revisions", {}))
    counts = _counts(key, facts.get("counts"), int(greeting.get("num_classes", 0)))
    shape = _input_shape(key, facts.get("input_shape"))
    digest = facts.get("fixed")
    return ClientDescription(
        counts,
        tuple(shape),
        _scaling(key, facts.get("scaling"), shape[0]),
        _dtype(key, facts.get("dtype")),
        _given_shape(key, facts.get("given_shape"), shape),
        _test_samples(key, facts.get("test_samples")),
        _salted_digest(key, facts.get("salted_digest")),
        digest if isinstance(digest, str) else "",
    )


def _check_revisions(given: object, expected: Mapping[str, int]) -> None:
    """Refuse a release of fedblade that computes a part of the run differently."""
    revisions = given if isinstance(given, Mapping) else {}
    for part, revision in expected.items():
        if revisions.get(part) != revision:
            raise InvalidDescription(
                f"its release of fedblade has revision {short_repr(revisions.get(part))} of {part}, the coordinator's "
                f"has {revision}, which gives other results"
            )


def _counts(key: str, given: Any, num_classes: int) -> tuple[int, ...]:
    if not _are_integers(given, 0, _MAX_SAMPLES) or not 0 < len(given) <= _MAX_CLASSES:
        raise InvalidDescription(
            f"client {key} says that it holds {short_repr(given)}; expected the number of samples per class"
        )
    if num_classes and len(given) != num_classes:
        raise InvalidDescription(f"client {key} counts samples of {len(given)} classes; the run has {num_classes}")
    return tuple(given)


def _input_shape(key: str, given: Any) -> list[int]:
    if not _are_integers(given, 1, _MAX_SAMPLES) or not 0 < len(given) <= _MAX_AXES:
        raise InvalidDescription(
            f"client {key} says that a sample has shape {short_repr(given)}; expected a list of sizes"
        )
    if math.prod(given) > _MAX_VALUES:
        raise InvalidDescription(
            f"client {key} says that a sample has shape {short_repr(given)}; more than {_MAX_VALUES} numbers"
        )
    return list(given)


def _scaling(key: str, given: Any, channels: int) -> Scaling:
    """Unit, mean and std; mean and std are one number for all channels or one for each."""
    match given:
        case [unit, list(mean), list(std)] if all(is_number(number, _LARGEST_NUMBER) for number in (unit, *mean, *std)):
            if unit > 0 and all(deviation > 0 for deviation in std) and {len(mean), len(std)} <= {1, channels}:
                return float(unit), tuple(map(float, mean)), tuple(map(float, std))
    raise InvalidDescription(
        f"client {key} says that samples are scaled by {short_repr(given)}; expected unit, mean and std"
    )


def _dtype(key: str, given: object) -> str:
    if not isinstance(given, str) or given not in _DTYPES:
        raise InvalidDescription(
            f"client {key} says that samples are of type {short_repr(given)}; expected a type of numbers"
        )
    return given


def _given_shape(key: str, given: object, shape: list[int]) -> tuple[int, ...]:
    """The shape before the channel axis was added or moved to the front; empty if neither was done."""
    without_channels = [shape[1:]] if shape[0] == 1 else []
    if given not in ([], [*shape[1:], shape[0]], *without_channels):
        raise InvalidDescription(
            f"client {key} says that samples were given as {short_repr(given)}; expected another order of axes"
        )
    return tuple(given) if isinstance(given, list) else ()


def _test_samples(key: str, given: Any) -> int:
    if not _are_integers([given], 0, _MAX_SAMPLES):
        raise InvalidDescription(
            f"client {key} says that it has {short_repr(given)} test samples; expected a whole number"
        )
    return int(given)


def _salted_digest(key: str, given: object) -> str:
    if not isinstance(given, str) or not _SALTED_DIGEST.fullmatch(given):
        raise InvalidDescription(f"client {key} says {short_repr(given)}; expected the salted digest of its samples")
    return given


def digests_differ(one: str, other: str) -> bool:
    """Whether two salted digests show different samples. Digests with different salts show nothing."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]


def _are_integers(given: Any, low: int, high: int) -> bool:
    return isinstance(given, list) and all(type(number) is int and low <= number <= high for number in given)
