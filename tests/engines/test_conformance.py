"""One suite for all engines and methods; a new engine is one name in ENGINES, a new method one line in METHODS."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from conformance import CHECKS, check_collect, check_inputs_untouched, check_measure, check_train, check_two_rounds
from small_federation import BATCH_NORM, CNN, build, images

from fedblade.core.method import zeros
from fedblade.core.outcome import StepLog
from fedblade.core.phase import Phase
from fedblade.core.registry import engines
from fedblade.core.sums import Sum
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.core.tree import tree_map
from fedblade.engines.base import RoundOutcome
from fedblade.engines.sequential import SequentialEngine
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf

ENGINES = ["sequential"]


def stateful():
    """Keeps a running sum of its own moves, which also pulls it back, and the server's count of rounds."""

    @dataclass(frozen=True, kw_only=True)
    class Back(GradientTerm):
        name: ClassVar[str] = "back"

        def gradient(self, view):
            return view.client["moves"]

    def moves(view):
        return tree_map(lambda old, w0, w: old + w - w0, view.client["moves"], view.anchor, view.params)

    return replace(
        fedavg(),
        losses=(CrossEntropy(), Back(weight=0.1)),
        client_state={"moves": zeros},
        client_update={"moves": moves},
        sums=(*fedavg().sums, Sum("moves", moves, bound=1e3)),
    )


MILD = {"lambda_decorr": 1e-4}
METHODS = {
    "fedavg": ("fedavg", {}),
    "fedprox": ("fedprox", {"mu": 0.1}),
    "feddecorr": ("feddecorr", {"lambda_decorr": 0.01}),
    "fedetf": ("fedetf", {}),
    "fedetf_no_projector": ("fedetf", {"projector": False}),
    "fedetf+lddecorr": ("fedetf+lddecorr", MILD),
    "fedblade": ("fedblade", MILD),
    "fedblade_floor_0": ("fedblade", {**MILD, "count_floor": 0}),
    "fedblade_balanced": ("fedblade", {"decorr.balance": 0.1, "local.last_batch": "drop"}),
    "fedblade_uniform": ("fedblade", {**MILD, "proto.weight": "uniform"}),
    "stateful": (stateful(), {}),
    "personal_head": (replace(fedavg(), personal=("head",)), {}),
    "personal_norm": (replace(fedavg(), personal=("norm",), buffers="local"), {}),
    "two_phases": (replace(fedavg(), phases=(Phase(("head",), epochs=1), Phase(("body",), epochs=1))), {}),
    "scale_only": (replace(fedetf(), phases=(Phase(("scale",)),)), {}),
}
SETTINGS = {
    "batch_norm": BATCH_NORM,
    "plain": {},
    "persistent": {"persist": True, "clip": 0.5},
    "two_of_four": {"clients_per_round": 2, "weighting": "uniform"},
    "singletons": {"local.batch_size": 51, **BATCH_NORM},
    "idle": {"local.batch_size": 20, "local.last_batch": "drop"},
    "wrapped": {"local.last_batch": "wrap", "weighting": "batches"},
}


def make(engine, method, setting, data=None):
    value, knobs = METHODS[method]
    setup = build(value, data, **{**knobs, **setting})
    return engines.get(engine).make(setup.problem), setup


def test_every_registered_engine_is_in_the_list():
    assert set(ENGINES) == set(engines.names())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree_with_the_clients_one_by_one(engine, method, check):
    check(*make(engine, method, SETTINGS["batch_norm"]))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", ["fedavg", "fedblade", "stateful"])
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree_in_every_setting(engine, method, setting):
    check_two_rounds(*make(engine, method, SETTINGS[setting]))


@pytest.mark.parametrize("method", ["fedavg", "fedblade"])
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree_on_augmented_images(engine, method):
    check_two_rounds(*make(engine, method, {**CNN, "dataset.augment": "crop_flip"}, images()))


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_tell_their_name(engine):
    made, _ = make(engine, "fedavg", {})
    assert made.name == engine


class ForgetsOne(SequentialEngine):
    """Trains all but the last client."""

    def train(self, server, tasks, store, lr, on_client):
        chosen = list(tasks)
        return super().train(server, chosen[:-1], store, lr, on_client)


class WrongWeight(SequentialEngine):
    """Weighs the last client one percent too high."""

    def train(self, server, tasks, store, lr, on_client):
        *rest, last = tasks
        return super().train(server, [*rest, replace(last, weight=1.01 * last.weight)], store, lr, on_client)


class WrongRate(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        return super().train(server, tasks, store, lr * (1 + 1e-6), on_client)


class SkipsAStep(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        short = [replace(t, phases=(t.phases[0][:-1], *t.phases[1:])) for t in tasks]
        return super().train(server, short, store, lr, on_client)


class LosesState(SequentialEngine):
    def _own(self, store, client, before_round):
        return None


class SwapsStates(SequentialEngine):
    def _own(self, store, client, before_round):
        return super()._own(store, 3 - client, before_round)


class SharesBuffers(SequentialEngine):
    """A reused worker: statistics of one client reach the next."""

    def train(self, server, tasks, store, lr, on_client):
        outcome, carried = RoundOutcome(), server
        for task in tasks:
            one = super().train(carried, [task], store, lr, on_client)
            outcome = RoundOutcome(outcome.sums + one.sums, outcome.log + one.log, outcome.bytes_up + one.bytes_up)
            means = {n: v / task.weight for n, v in one.sums["buffers"].items()}
            carried = carried.replace(buffers={**carried.buffers, **means})
        return outcome


class Chains(SequentialEngine):
    """Starts each client where the one before it ended."""

    def train(self, server, tasks, store, lr, on_client):
        outcome, carried = RoundOutcome(), server
        for task in tasks:
            one = super().train(carried, [task], store, lr, on_client)
            outcome = RoundOutcome(outcome.sums + one.sums, outcome.log + one.log, outcome.bytes_up + one.bytes_up)
            moved = {n: carried.params[n] + v / task.weight for n, v in one.sums["delta"].items()}
            carried = carried.replace(params={**carried.params, **moved})
        return outcome


class Silent(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        return super().train(server, tasks, store, lr, lambda client: None)


class LogsNothing(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        return replace(super().train(server, tasks, store, lr, on_client), log=StepLog())


class CountsNoBytes(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        return replace(super().train(server, tasks, store, lr, on_client), bytes_up=0)

    def collect(self, server, tasks, store, sums):
        return replace(super().collect(server, tasks, store, sums), bytes_up=0)


class Overwrites(SequentialEngine):
    def train(self, server, tasks, store, lr, on_client):
        outcome = super().train(server, tasks, store, lr, on_client)
        for leaf in server.params.values():
            leaf.add_(1e-3)
        return outcome


class MeasuresInTraining(SequentialEngine):
    """Evaluates with batch statistics."""

    def measure(self, server, samples, indices, passes):
        network = self._problem.network
        evaluate = type(network).features
        try:
            type(network).features = lambda self, p, b, x, *, training: evaluate(self, p, dict(b), x, training=True)
            return super().measure(server, samples, indices, passes)
        finally:
            type(network).features = evaluate


class CollectsTwice(SequentialEngine):
    def collect(self, server, tasks, store, sums):
        chosen = list(tasks)
        return super().collect(server, [*chosen, chosen[0]], store, sums)


class IgnoresOwnParts(SequentialEngine):
    def measure_own(self, server, client, samples, indices, passes):
        return self.measure(server, samples, indices, passes)


BROKEN = [
    (ForgetsOne, check_train, "fedavg"),
    (WrongWeight, check_train, "fedavg"),
    (WrongRate, check_train, "fedavg"),
    (SkipsAStep, check_train, "fedblade"),
    (LosesState, check_two_rounds, "stateful"),
    (LosesState, check_two_rounds, "personal_head"),
    (SwapsStates, check_two_rounds, "stateful"),
    (SharesBuffers, check_train, "fedavg"),
    (Chains, check_train, "fedavg"),
    (Silent, check_train, "fedavg"),
    (LogsNothing, check_train, "fedavg"),
    (CountsNoBytes, check_train, "fedavg"),
    (CountsNoBytes, check_collect, "fedavg"),
    (Overwrites, check_inputs_untouched, "fedavg"),
    (CollectsTwice, check_collect, "fedavg"),
    (MeasuresInTraining, check_measure, "fedavg"),
    (IgnoresOwnParts, check_measure, "fedavg"),
]


@pytest.mark.parametrize(("broken", "check", "method"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_a_broken_engine_is_rejected(broken, check, method):
    _, setup = make("sequential", method, SETTINGS["batch_norm"])
    check(SequentialEngine(setup.problem), setup)
    with pytest.raises(AssertionError):
        check(broken(setup.problem), setup)


def remembers():
    """A method that breaks rule 4: it keeps something between clients, so that neighbours matter."""

    @dataclass(frozen=True, kw_only=True)
    class Remembers(Term):
        name: ClassVar[str] = "remembers"
        calls: list

        def __call__(self, view):
            self.calls.append(1)
            return TermValue(1e-4 * len(self.calls) * view.features.square().mean())

    return replace(fedavg(), losses=(CrossEntropy(), Remembers(calls=[])))


def draws():
    """A method that breaks rule 3: its draws come from a generator that nobody seeds."""

    @dataclass(frozen=True, kw_only=True)
    class Draws(Term):
        name: ClassVar[str] = "draws"

        def __call__(self, view):
            return TermValue(np.random.default_rng().random() * view.features.mean())

    return replace(fedavg(), losses=(CrossEntropy(), Draws()))


@pytest.mark.parametrize("method", [remembers, draws])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_broken_method_is_rejected(engine, method):
    setup = build(method(), **BATCH_NORM)
    with pytest.raises(AssertionError):
        check_train(engines.get(engine).make(setup.problem), setup)
