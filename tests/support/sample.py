"""Which methods a test takes: every method where that is the point of the test, and a fixed sample elsewhere.

Conformance of engines and training by nodes are tested with every method. Other tests of "every method", such as the
command line or resuming, take `sampled(names)`: a method that differs from one of the sample in its loss alone cannot
break them. `make test` runs the few methods of `FEW`, `make test-all` all of `SAMPLE`, `make test-slow` the others.
"""

from collections.abc import Iterable

import pytest

FEW = {
    "fedavg": "plain averaging",
    "scaffold": "state on clients and on the server, and a second payload",
    "fedblade": "a fixed ETF behind a projector, and prototypes in the payload",
    "fedper": "a head that stays with its client",
    "ditto": "a second model on every client",
}
"""Names of methods, and the kind of state, head or payload for which each name stands."""

SAMPLE = FEW | {
    "fednova": "updates that are divided by the number of steps",
    "feddyn": "state on clients that a sum follows on the server",
    "fedexp": "a server that needs a norm of every client",
    "moon": "the client's last model as a teacher",
    "perfedavg": "a gradient that is taken elsewhere, with a second batch",
    "fedgen": "heads of single clients, and an exchange before the run",
    "fedfm": "an exchange after every round",
    "ccvr": "an exchange after the run",
    "fedgela": "a fixed classifier that is scaled for every client",
    "fednh": "class directions as the head",
    "fedrod": "two heads",
    "fedbabu": "a head that is frozen",
    "spherefed": "an orthonormal head that is calibrated",
    "local_ce": "clients that send nothing",
    "fedprox+lddecorr": "a regulariser beside a term of the base",
    "fedavg+prox": "a regulariser that is mixed in",
    "moon+feddecorr": "a regulariser beside a teacher",
}
"""A test checks that every kind of head, payload, client state and exchange is here."""


def sampled(names: Iterable[str], beyond: pytest.MarkDecorator = pytest.mark.slow) -> list[object]:
    """Parameters of a test: the few as they are, the rest of the sample as `thorough`, other names marked `beyond`."""

    def mark(name: str) -> object:
        if name in FEW:
            return name
        return pytest.param(name, marks=pytest.mark.thorough if name in SAMPLE else beyond)

    return [mark(name) for name in names]


def thorough(*values: object) -> list[object]:
    """Parameters of a test that `make test` leaves out."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]
