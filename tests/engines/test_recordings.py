"""Recorded steps: the bits of ordinary steps for every method, and steps that cannot be recorded."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from fedblade.core.problem import LocalModel
from fedblade.core.registry import engines, methods
from fedblade.core.state import MemoryStore, flatten
from fedblade.core.terms import Term, TermValue
from fedblade.engines import _recordings
from fedblade.engines._recorded_step import Steps
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from support.conformance import LR
from support.for_every import for_every
from support.recordings import kinds_of, take_ordinary_steps
from support.sample import sampled
from support.small_federation import BATCH_NORM, CNN, assert_same_bits, build, images, tasks

ORDINARY = {"fedfm", "fedgen", "perfedavg"}
"""Methods whose terms read the round or the learning rate: their steps are not recorded."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Record the first step of every kind."""
    monkeypatch.setattr(_recordings, "LEAST_STEPS", 1)


def two_rounds(setup, *, recorded, change=lambda server: server):
    """What clients send and keep in two rounds of the stacked engine, and the engine."""
    engine, store, found = engines.get("stacked").make(setup.problem), MemoryStore(), []
    if not recorded:
        take_ordinary_steps(engine)
    server = setup.start
    for round_ in range(2):
        outcome = engine.train(server, tasks(setup, round_), store, LR, lambda client: None)
        clients = range(setup.config.federation.num_clients)
        kept = {str(k): flatten(state) for k in clients if (state := store.get(k, round_ + 1))}
        found.append({f"{k}.{name}": leaf for k, tree in kept.items() for name, leaf in tree.items()})
        found[-1] |= {f"{name}.{key}": leaf for name, tree in outcome.sums.trees.items() for key, leaf in tree.items()}
        found[-1] |= {f"log.{name}": torch.tensor(value) for name, value in outcome.log.means().items()}
        server = change(setup.method.server(server, outcome.sums).replace(round=round_ + 1))
    return found, engine


def check_same_bits(setup, **options):
    """Both rounds with recorded steps are those of ordinary steps; returns the kinds of steps."""
    found, engine = two_rounds(setup, recorded=True, **options)
    for one, other in zip(found, two_rounds(setup, recorded=False, **options)[0], strict=True):
        assert_same_bits(one, other)
    return kinds_of(engine)


@pytest.mark.parametrize("method", sampled(methods.names(), pytest.mark.thorough))
def test_recorded_steps_give_the_bits_of_ordinary_ones(method):
    for dtype in ("float64", "float32"):
        kinds = check_same_bits(build(method, images(60, 10), dtype=dtype, **CNN))
        assert any(kind.trusted for kind in kinds) != (method in ORDINARY), dtype


@for_every(
    [
        {"persist": True, "clip": 0.5, **BATCH_NORM},
        {"clients_per_round": 2, **CNN},
        {"local.last_batch": "wrap", "dataset.augment": "crop_flip", **CNN},
        {"dtype": "float32", "autocast": "bf16", **CNN},
    ]
)
def test_recorded_steps_give_the_same_bits_in_every_setting(overrides):
    kinds = check_same_bits(build("fedblade", images(60, 10), **overrides))
    assert any(kind.trusted for kind in kinds)


def test_steps_of_a_term_that_warms_up_are_not_recorded():
    kinds = check_same_bits(build("fedblade", images(60, 10), **{"decorr.warmup": 2}, **CNN))
    assert not any(kind.trusted for kind in kinds)


def test_one_program_serves_every_number_of_clients():
    many = {"num_clients": 8, "clients_per_round": 8, "epochs": 1}
    kinds = check_same_bits(build("fedavg", images(200, 10), **many, **CNN))
    general = [kind for kind in kinds if kind.general is not None]
    assert any(len(kind.trusted) > len(kind.programs) for kind in general)


@dataclass(frozen=True, kw_only=True)
class Own(Term):
    """A term of a user."""

    name: ClassVar[str] = "own"

    def factor(self, view):
        raise NotImplementedError

    def __call__(self, view):
        return TermValue(view.features.square().mean() * self.factor(view))


class ReadsTheRound(Own):
    def factor(self, view):
        return 0.9**view.round


class ReadsANumber(Own):
    def factor(self, view):
        # The received model is the same for all clients, so that vmap lets it be read.
        return view.anchor["head.bias"][0].item()


class ReadsAList(Own):
    def factor(self, view):
        return view.anchor["head.bias"].tolist()[0]


class Branches(Own):
    def factor(self, view):
        return 0.5 if view.anchor["head.bias"][0] > 0 else 2.0


class Counts(Own):
    calls: ClassVar[list[int]] = []

    def factor(self, view):
        self.calls.append(1)
        return float(len(self.calls))


def with_term(term):
    return build(replace(fedavg(), losses=(CrossEntropy(), term)))


@pytest.mark.parametrize("term", [ReadsTheRound, ReadsANumber, ReadsAList])
def test_a_step_that_reads_numbers_is_taken_as_it_is_written(term):
    kinds = check_same_bits(with_term(term()))
    assert all(kind.is_refused and not kind.trusted for kind in kinds)


def test_a_yes_or_no_that_changes_is_noticed():
    setup = with_term(Branches())
    turned = {"head.bias": -setup.start.params["head.bias"]}
    kinds = check_same_bits(setup, change=lambda server: server.replace(params=server.params | turned))
    assert any(kind.trusted for kind in kinds)
    assert any(kind.failures for kind in kinds)


def negative_norms(server):
    """The same server with a negative weight in every normalisation, so that another value of a window is largest."""
    norms = {name: -leaf for name, leaf in server.params.items() if leaf.dim() == 1 and name.endswith("1.weight")}
    assert norms
    return server.replace(params=server.params | norms)


def test_a_layer_that_decides_by_its_weights_decides_anew():
    setup = build("fedavg", images(64, 10), partition="iid", batch_size=16, **CNN)
    kinds = check_same_bits(setup, change=negative_norms)
    assert any(kind.failures for kind in kinds)


def test_a_program_that_gives_other_bits_is_not_used():
    setup = with_term(Counts())
    _, engine = two_rounds(setup, recorded=True)
    assert not any(kind.trusted for kind in kinds_of(engine))
    assert all(kind.is_refused or kind.failures for kind in kinds_of(engine) if kind.steps > 2)


@pytest.mark.parametrize(("name", "most"), [("MOST_BYTES", 1000), ("MOST_PROGRAMS", 0)])
def test_large_steps_and_too_many_kinds_are_not_recorded(monkeypatch, name, most):
    monkeypatch.setattr(_recordings, name, most)
    assert not any(kind.programs for kind in check_same_bits(build("fedavg")))


def test_a_client_alone_is_never_recorded(monkeypatch):
    monkeypatch.setattr(_recordings, "record", lambda *_: pytest.fail("recorded"))
    setup = build("fedavg")
    engines.get("sequential").make(setup.problem).train(setup.start, tasks(setup), MemoryStore(), LR, lambda _: None)


def test_a_short_run_records_nothing(monkeypatch):
    monkeypatch.undo()
    _, engine = two_rounds(build("fedavg", images(30, 10), epochs=1), recorded=True)
    assert kinds_of(engine)
    assert not any(kind.programs for kind in kinds_of(engine))


@pytest.mark.parametrize(("in_state", "still"), [(False, 2), (True, 0)])
def test_a_state_that_is_the_model_in_training_is_not_still(in_state, still):
    weight = torch.ones(2, 3)
    kept = weight.detach() if in_state else weight.clone()
    parts = {name: {} for name in ("anchor", "buffers", "fixed", "server")}
    received = SimpleNamespace(counts=torch.ones(2, 4), client={"draft": {"weight": kept}}, **parts)
    steps = Steps(None, received, None, LocalModel({"weight": weight}, {}, {}))
    assert steps.tensors()[1] == still
