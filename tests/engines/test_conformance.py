"""One suite for all engines and methods.

A new engine is one name in ENGINES; a registered method, regulariser or model is covered without a line here.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedblade.core.method import Own, model, zeros
from fedblade.core.neck import Neck
from fedblade.core.one_client import OneClient
from fedblade.core.outcome import StepLog, train_client
from fedblade.core.phase import Lookahead, Phase, Sgd
from fedblade.core.registry import engines, methods, models, regularisers
from fedblade.core.sums import DataPass, Sum
from fedblade.core.terms import GradientTerm, Term, TermValue
from fedblade.core.tree import tree_map
from fedblade.core.views import Teacher
from fedblade.data import as_dataset
from fedblade.engines import _group_passes
from fedblade.engines.base import MeasuredClient, RoundOutcome
from fedblade.engines.sequential import SequentialEngine
from fedblade.losses import CrossEntropy
from fedblade.losses._masking import mean_of_real
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf
from fedblade.personal import local_model
from support.conformance import (
    CHECKS,
    assert_near,
    check_adapt,
    check_collect,
    check_inputs_untouched,
    check_measure,
    check_train,
    check_two_rounds,
    over_real,
)
from support.for_every import check_all
from support.model_cases import CASES as MODEL_CASES
from support.sample import sampled, thorough
from support.small_federation import (
    BATCH_NORM,
    CNN,
    NUM_CLASSES,
    assert_different,
    build,
    images,
    read_anew,
    tasks,
    vectors,
)

ENGINES = ["sequential", "stacked"]
OTHERS = ENGINES[1:]
"""Engines that do more than call the reference, for what takes long."""
STACKED_FIRST = [*thorough(ENGINES[0]), *OTHERS]
"""`make test` leaves out the engine that calls the reference."""


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


@dataclass(frozen=True, kw_only=True)
class Near(Term):
    """Mean squared distance of the raw logits to a teacher's."""

    name: ClassVar[str] = "near"
    teacher: Teacher

    @property
    def teachers(self):
        return (self.teacher,)

    def __call__(self, view):
        gaps = (view.raw_logits - view.teachers[self.teacher].raw_logits).square()
        return TermValue(mean_of_real(gaps.mean(1), view.mask))


@dataclass(frozen=True, kw_only=True)
class Shaken(Term):
    """Features, weighted with the method's noise."""

    name: ClassVar[str] = "shaken"

    def __call__(self, view):
        shaken = view.features.square() * view.noise[:, 1:].to(view.features)
        return TermValue(mean_of_real(shaken.mean(1), view.mask))


@dataclass(frozen=True, kw_only=True)
class Flat(Term):
    """Mean square of the body's stages."""

    name: ClassVar[str] = "flat"

    @property
    def taps(self):
        return "relu"

    def __call__(self, view):
        return TermValue(sum(mean_of_real(stage.square().mean(1), view.mask) for stage in view.stages))


def taught():
    """Three teachers: the received model with both kinds of statistics, and the model of the last participation."""
    teachers = (Teacher(), Teacher(norm="batch"), Teacher(of="last"))
    return replace(
        fedavg(),
        losses=(CrossEntropy(), *(Near(teacher=teacher, weight=0.1) for teacher in teachers)),
        client_state={"last": model},
        client_update={"last": local_model},
    )


def uphill(view):
    return tree_map(lambda w, g: w + 0.3 * g, view.params, view.gradient)


def sharing():
    """Shows the server each client's bias, which it keeps as the mean."""

    def server(state, sums):
        moved = fedavg().server(state, sums)
        bias = sums["bias"]["head.bias"].mean(0).to(moved.params["head.bias"])
        return moved.replace(params={**moved.params, "head.bias": bias})

    bias = Sum("bias", lambda view: {"head.bias": view.params["head.bias"]}, bound=1e3, reduce="each")
    return replace(fedavg(), sums=(*fedavg().sums, bias), server=server)


def calibrated(view):
    """A client's own prediction: logits and what it holds of each class, with the bias it kept."""
    return view.logits + view.counts.clamp(min=1).to(view.logits).log() + view.client["last"]["head.bias"]


BESIDE = {"phases": (Phase(), Phase(track="last", epochs=1, sgd=Sgd(lr=0.02))), "client_state": {"last": model}}
KEEPING = {"client_state": {"last": model}, "client_update": {"last": local_model}}

MILD = {"lambda_decorr": 1e-4}
KNOBS = {
    "ccvr": {"method.epochs": 2},
    "decov": {"lambda_decorr": 1e-3},
    "fedblade": MILD,
    "feddecorr": {"lambda_decorr": 0.01},
    "fedge": {"E_W": 9.0},
    "fedgela": {"E_W": 9.0},
    "fedgen": {"hid": 8, "nz": 3, "n_it": 2},
    "fedprox": {"mu": 0.1},
    "fedsol": {"rho": 0.1},
    "lsingular": {"lambda_decorr": 1e-3},
    "moon": {"mlp": True, "mlp_width": 6},
    "stdecov": {"groups": 4, "lambda_decorr": 1e-3},
    "fedavg+decov": {"method.decov.lambda_decorr": 1e-3},
    "fedavg+feddecorr": {"method.feddecorr.lambda_decorr": 0.01},
    "fedavg+lddecorr": {"method.lddecorr.lambda_decorr": 1e-4},
    "fedavg+lsingular": {"method.lsingular.lambda_decorr": 1e-3},
    "fedavg+stdecov": {"method.stdecov.groups": 4, "method.stdecov.lambda_decorr": 1e-3},
}
"""Where the defaults are for large models or long runs, which a small federation does not survive or wait for."""
NAMED = [*methods.names(), *(f"fedavg+{name}" for name in regularisers.names())]
CAPABILITIES = {
    "fedavg": ("fedavg", {}),
    "feddecorr": ("feddecorr", KNOBS["feddecorr"]),
    "fedetf": ("fedetf", {}),
    "fedetf_no_projector": ("fedetf", {"projector": False}),
    "fedetf+lddecorr": ("fedetf+lddecorr", {"method.lddecorr.lambda_decorr": 1e-4}),
    "fedblade": ("fedblade", MILD),
    "fedblade_floor_0": ("fedblade", {**MILD, "count_floor": 0}),
    "fedblade_balanced": ("fedblade", {"decorr.balance": 0.1, "local.last_batch": "drop"}),
    "fedblade_uniform": ("fedblade", {**MILD, "proto.weight": "uniform"}),
    "stateful": (stateful(), {}),
    "personal_head": (replace(fedavg(), personal=("head",)), {}),
    "personal_norm": (replace(fedavg(), personal=("norm",), buffers="local"), {}),
    "two_phases": (replace(fedavg(), phases=(Phase(("head",), epochs=1), Phase(("body",), epochs=1))), {}),
    "scale_only": (replace(fedetf(), phases=(Phase(("scale",)),)), {}),
    "teachers": (taught(), {}),
    "stages": (replace(fedavg(), losses=(CrossEntropy(), Flat(weight=0.1))), {}),
    "track": (replace(fedavg(), **BESIDE), {}),
    "lookahead": (replace(fedavg(), phases=(Phase(lookahead=Lookahead(uphill)),)), {}),
    "fresh_lookahead": (replace(fedavg(), phases=(Phase(lookahead=Lookahead(uphill, fresh_batch=True)),)), {}),
    "group_rates": (replace(fedavg(), phases=(Phase(group_sgd={"head": Sgd(lr=0.2, momentum=0.0)}),)), {}),
    "kept_statistics": (replace(fedavg(), phases=(Phase(epochs=1), Phase(epochs=1, statistics="keep"))), {}),
    "noise": (replace(fedavg(), losses=(CrossEntropy(), Shaken(weight=0.5)), noise=2), {}),
    "each": (sharing(), {}),
    "untrained_head": (replace(fedavg(), phases=(Phase(trains=("body",)),)), {}),
    "few_steps": (replace(fedavg(), phases=(Phase(steps=3),)), {}),
    "neck": (replace(fedavg(), neck=Neck(6, hidden=1.0, norm="batch")), {}),
    "freed": (replace(fedetf(), phases=(Phase(frees=("etf",)),)), {}),
    "own_state": (replace(fedavg(), **BESIDE, own=Own(state="last")), {}),
    "own_logits": (replace(fedavg(), **KEEPING, own=Own(logits=calibrated)), {}),
}
RELEASE = {"ft.variant": "release", "ft.iterations": 1}
VARIANTS = {
    "ditto_fedbabu": ("ditto", {"variant": "fedbabu", "lambda_ditto": 0.5}),
    "fedetf_released": ("fedetf", {"projector_bias": False, "count_floor": 0, **RELEASE}),
    "fedexp_released": ("fedexp", {"rule": "released", "eps": 0.02}),
    "fedgela_projected": ("fedgela", {"head": "projected"}),
    "fedrep_carried": ("fedrep", {"carry_momentum": True, "freeze_bn": False}),
    "fedrs_authors": ("fedrs", {"weights": "authors"}),
    "perfedavg_carried": ("perfedavg", {"carry_momentum": True, "beta_out": 0.02}),
    "scaffold_frozen": ("scaffold", {"freeze_classifier": True}),
}
"""Methods as other people's code has them."""
METHODS = {name: (name, KNOBS.get(name, {})) for name in NAMED} | CAPABILITIES | VARIANTS
OWN_PREDICTIONS = ("own_logits",)
"""Methods whose clients do not predict with the head's logits, which is what `check_measure` expects."""
QUICK_CHECKS = {("fedavg", check) for check in CHECKS} | {(method, check_two_rounds) for method in CAPABILITIES}
"""What `make test` takes: every check with averaging, and two rounds with every capability."""
CASES = [
    pytest.param(method, check, marks=[pytest.mark.thorough] * ((method, check) not in QUICK_CHECKS))
    for method in CAPABILITIES
    for check in CHECKS
    if check is not check_measure or method not in OWN_PREDICTIONS
]
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
    """tests/runs/distributed and tests/engines/nodes compare the engines that a configuration cannot choose."""
    assert set(ENGINES) == set(engines.names())


def test_every_setting_of_a_method_is_of_a_registered_one():
    assert set(KNOBS) <= set(NAMED)


@pytest.mark.parametrize(("method", "check"), CASES, ids=lambda x: getattr(x, "__name__", x))
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_with_the_clients_one_by_one(engine, method, check):
    check(*make(engine, method, SETTINGS["batch_norm"]))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "method", ["fedblade", *thorough("fedavg", "stateful", "teachers", "track", "fresh_lookahead", "noise")]
)
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_in_every_setting(engine, method, setting):
    check_two_rounds(*make(engine, method, SETTINGS[setting]))


@pytest.mark.parametrize("method", ["fedavg", "fedblade"])
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_on_augmented_images(engine, method):
    check_two_rounds(*make(engine, method, {**CNN, "dataset.augment": "crop_flip"}, images()))


@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_on_samples_that_are_read_anew(engine):
    """In training, with a recipe on top, in steps of two batches and in passes that augment."""
    seen = {**CNN, "proto.transform": "train", "lr": 0.01, "dataset.augment": "crop_flip"}
    check_two_rounds(*make(engine, "fedblade", seen, read_anew(images(40, 10))))
    check_two_rounds(*make(engine, "perfedavg", {}, read_anew(vectors(60, 10))))


@pytest.mark.thorough
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_for_every_variant(engine):
    for method in VARIANTS:
        check_two_rounds(*make(engine, method, BATCH_NORM))


IMAGES = images(60, 10)


@pytest.mark.parametrize("method", sampled(NAMED, pytest.mark.thorough))
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_for_every_registered_method(engine, method):
    check_two_rounds(*make(engine, method, BATCH_NORM))


@pytest.mark.parametrize("method", sampled(NAMED, pytest.mark.thorough))
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_for_every_registered_method_on_images(engine, method):
    check_two_rounds(*make(engine, method, {**CNN, "local.epochs": 1}, IMAGES))


@pytest.mark.parametrize("method", [name for name in methods.names() if methods.get(name).make().exchanges])
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_on_what_methods_exchange_besides_the_rounds(engine, method):
    made, setup = make(engine, method, BATCH_NORM)
    for exchange in setup.method.exchanges:
        check_collect(made, setup, exchange.sums)


LOGITS = (DataPass("logits", lambda view: {"logits": over_real(view, view.logits)}),)
PERSONAL = [name for name in methods.names() if methods.get(name).make().has_own_models]


@pytest.mark.parametrize("setting", ["running", "batch"])
@pytest.mark.parametrize("method", sampled(PERSONAL, pytest.mark.thorough))
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_on_the_own_models_of_every_method_that_has_them(engine, method, setting):
    """Clients that trained, one that never did, on parts of the test set that differ in size."""
    made, setup = make(engine, method, {**BATCH_NORM, "norm_stats": setting})
    cohort = tasks(setup)
    kept = [train_client(setup.problem, setup.start, task, None, 0.05).state for task in cohort[:3]]
    holders = [
        MeasuredClient(task.client, state, task.counts) for task, state in zip(cohort, [*kept, None], strict=True)
    ]
    parts = [setup.test_order, setup.test_order[:9], setup.test_order[5:], setup.test_order[:20]]
    passes = tuple(each for metric in setup.metrics for each in metric.passes) + LOGITS
    found, expected = (
        list(each.measure_personal(setup.start, zip(holders, parts, strict=True), setup.test, passes))
        for each in (made, SequentialEngine(setup.problem))
    )
    for (client, totals), (wanted, trees) in zip(found, expected, strict=True):
        assert client == wanted
        for name, tree in trees.items():
            assert_near(totals[name], tree)


@pytest.mark.parametrize("method", [name for name in methods.names() if methods.get(name).make().exchanges])
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_on_exchanges_with_batch_statistics(engine, method):
    made, setup = make(engine, method, {**BATCH_NORM, "norm_stats": "batch"})
    for exchange in setup.method.exchanges:
        check_collect(made, setup, exchange.sums)


def test_what_passes_give_bounds_how_many_batches_pass_at_a_time(monkeypatch):
    """One batch at a time gives what many give."""
    made, setup = make("stacked", "ccvr", BATCH_NORM)
    monkeypatch.setattr(_group_passes, "MOST_BYTES", 1)
    for exchange in setup.method.exchanges:
        check_collect(made, setup, exchange.sums)


def test_a_larger_batch_changes_nothing_in_a_pass_with_running_statistics():
    made, setup = make("stacked", "fedavg", BATCH_NORM)
    made._global_model = replace(made._global_model, pass_batch=7)
    check_measure(made, setup)


TUNED = {
    "ditto": lambda method: (method.phases,),
    "fedetf": lambda method: method.own.tuning["pers_etf"],
    "fedbabu-ft": lambda method: (method.own.finetune,),
    "fedrep": lambda method: (method.phases,),
    "fedrod": lambda method: (method.phases,),
    "perfedavg": lambda method: method.own.tuning["ft"],
    "ditto_fedbabu": lambda method: (method.phases,),
    "fedetf_released": lambda method: method.own.tuning["pers_etf"],
    "fedrep_carried": lambda method: (method.phases,),
    "perfedavg_carried": lambda method: method.own.tuning["ft"],
    "feddr_plus": lambda method: (method.own.finetune or method.phases,),
}


@pytest.mark.parametrize("method", [*thorough("fedetf"), *(name for name in TUNED if name != "fedetf")])
@pytest.mark.parametrize("engine", STACKED_FIRST)
def test_engines_agree_on_the_stages_of_own_models(engine, method):
    """Models kept beside, fixed tensors that are freed, heads that tuning alone trains."""
    name, knobs = METHODS.get(method, (method, {}))
    setup = build(name, **BATCH_NORM, **knobs)
    made = engines.get(engine).make(setup.problem)
    for phases in TUNED[method](setup.method):
        check_adapt(made, setup, phases)


SETTINGS_OF_ALL = {**SETTINGS, "batch_statistics": {**BATCH_NORM, "norm_stats": "batch"}}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_for_every_method_in_every_setting(engine, method):
    check_all(SETTINGS_OF_ALL, lambda name: check_two_rounds(*make(engine, method, SETTINGS_OF_ALL[name])))


LONG = ("alexnet_bn", "densenet121", "wrn56_4")
"""Models whose steps take more than about ten seconds."""
QUICK = ("mlp", "small_cnn", "resnet20")
MODELS = [
    pytest.param(
        case,
        marks=[pytest.mark.slow] * (case.name in LONG) + [pytest.mark.thorough] * (case.name not in QUICK),
        id=case.name,
    )
    for case in MODEL_CASES
]
SHORT = {
    "num_clients": 3,
    "clients_per_round": 3,
    "partition.alpha": 1.0,
    "partition.min_size": 5,
    "local.epochs": 1,
    "local.batch_size": 8,
}


def test_every_registered_model_is_in_the_list():
    assert {case.name for case in MODEL_CASES} == set(models.names())


def samples_for(case):
    """A few samples of the shape that a model takes."""
    labels = np.arange(29) % NUM_CLASSES
    inputs = case.inputs(29, torch.float64).numpy()
    return as_dataset((inputs[:24], labels[:24], inputs[24:], labels[24:]))


ONE_BATCH = {"perfedavg": {"local.batch_size": 16}}
"""A step that takes two batches has all samples as both: BatchNorm over the two that are left over is chaotic."""


def check_one_step(engine, case, method):
    """One step of each client, with batches of different sizes: deep networks on few samples amplify rounding fast."""
    made, setup = make(engine, method, {"model": case.name, **SHORT, **ONE_BATCH.get(method, {})}, samples_for(case))
    short = [replace(t, phases=tuple(phase[:1] for phase in t.phases)) for t in tasks(setup)]
    check_train(made, setup, cohort=short)


ON_EVERY_MODEL = ("fedavg", "fedblade")


@pytest.mark.parametrize("method", [pytest.param("fedavg", marks=pytest.mark.slow), "fedblade"])
@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_for_every_model(engine, case, method):
    check_one_step(engine, case, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in methods.names() if name not in ON_EVERY_MODEL])
@pytest.mark.parametrize("engine", OTHERS)
def test_engines_agree_for_every_method_on_every_model(engine, method):
    check_all(MODEL_CASES, lambda case: check_one_step(engine, case, method))


def measure_one(engine, setup, holder):
    """What the passes give for one client on the whole test set."""
    ((_, totals),) = engine.measure_personal(setup.start, [(holder, setup.test_order)], setup.test, LOGITS)
    return totals


def check_own_model(engine, setup):
    """A client that trained is measured with the model it kept and with its own prediction."""
    task = tasks(setup)[2]
    state = train_client(setup.problem, setup.start, task, None, 0.05).state
    found = measure_one(engine, setup, MeasuredClient(2, state, task.counts))
    start, kept, own = setup.start, state["last"], setup.method.own
    params, buffers = start.params, start.buffers
    if own.state is not None:
        params, buffers = ({name: kept[name] for name in tree} for tree in (params, buffers))
    x, _ = setup.test.batch(setup.test_order)
    z = setup.problem.network.features(params, buffers, x, training=False)
    logits = setup.problem.network.output(params, {}, z).logits
    if own.logits is not None:
        logits = logits + task.counts.clamp(min=1).to(logits).log() + kept["head.bias"]
    assert_near(found["logits"], {"logits": logits.sum(0)})


@pytest.mark.parametrize("method", ["own_state", "own_logits"])
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_measure_own_models_with_their_own_prediction(engine, method):
    check_own_model(*make(engine, method, SETTINGS["batch_norm"]))


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_give_newcomers_their_first_state_when_they_are_measured(engine):
    """A client that never trained predicts with the state it would start from."""
    made, setup = make(engine, "own_logits", SETTINGS["batch_norm"])
    counts = tasks(setup)[2].counts
    found, expected = (
        measure_one(made, setup, MeasuredClient(2, state, counts))
        for state in (None, {"last": setup.start.params | setup.start.buffers})
    )
    assert_near(found["logits"], expected["logits"])


@pytest.mark.parametrize(
    "method", ["teachers", "track", "lookahead", "group_rates", "kept_statistics", "noise", "each"]
)
def test_each_capability_changes_what_a_round_gives(method):
    """Otherwise agreement on it would say nothing."""
    sums = []
    for name in (method, "fedavg"):
        _, setup = make("sequential", name, SETTINGS["batch_norm"])
        server = setup.start.replace(round=1)
        own = {k: {"last": tree_map(lambda leaf: leaf + leaf.abs() / 2, setup.start.params)} for k in range(4)}
        results = [train_client(setup.problem, server, task, own[task.client], 0.05) for task in tasks(setup, 1)]
        sums.append({"trees": results[0].sums.trees, "state": results[0].state})
    mine, plain = sums
    if method == "each":
        assert mine["trees"].keys() - plain["trees"].keys() == {"bias"}
    elif method == "track":
        assert mine["state"].keys() - plain["state"].keys() == {"last"}
    else:
        assert_different(mine["trees"]["delta"], plain["trees"]["delta"])


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
    def _state(self, store, task, before_round):
        return None


class SwapsStates(SequentialEngine):
    def _state(self, store, task, before_round):
        return super()._state(store, replace(task, client=3 - task.client), before_round)


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


class InTraining(OneClient):
    """Features with batch statistics, whatever is asked for."""

    def features(self, params, fixed, buffers, inputs, mask, **given):
        return super().features(params, fixed, dict(buffers), inputs, mask, **given | {"training": True})


class MeasuresInTraining(SequentialEngine):
    """Evaluates with batch statistics."""

    def measure(self, server, samples, indices, passes):
        self._client = InTraining(self._problem)
        return super().measure(server, samples, indices, passes)


class CollectsTwice(SequentialEngine):
    def collect(self, server, tasks, store, sums):
        chosen = list(tasks)
        return super().collect(server, [*chosen, chosen[0]], store, sums)


class IgnoresOwnParts(SequentialEngine):
    def measure_personal(self, server, clients, samples, passes):
        for holder, indices in clients:
            yield holder.client, self.measure(server, samples, indices, passes)


class TunesFromScratch(SequentialEngine):
    """Forgets what a client kept when its own model is tuned."""

    def adapt(self, server, tasks, own, lr, phases):
        return super().adapt(server, tasks, lambda client: None, lr, phases)


class TunesAllButOne(SequentialEngine):
    def adapt(self, server, tasks, own, lr, phases):
        return super().adapt(server, list(tasks)[:-1], own, lr, phases)


class TunesAtAnotherRate(SequentialEngine):
    def adapt(self, server, tasks, own, lr, phases):
        faster = tuple(replace(phase, sgd=replace(phase.sgd, lr=(phase.sgd.lr or lr) * (1 + 1e-6))) for phase in phases)
        return super().adapt(server, tasks, own, lr, faster)


class TunesTheMethodsPhases(SequentialEngine):
    """Does what a round does, whatever it is asked for."""

    def adapt(self, server, tasks, own, lr, phases):
        return super().adapt(server, tasks, own, lr, self._problem.method.phases)


class TunesTheNextClient(SequentialEngine):
    """Gives each client the state of its neighbour."""

    def adapt(self, server, tasks, own, lr, phases):
        return super().adapt(server, tasks, lambda client: own((client + 1) % 4), lr, phases)


class TunesTheServersModel(SequentialEngine):
    def adapt(self, server, tasks, own, lr, phases):
        for client, state in super().adapt(server, tasks, own, lr, phases):
            for leaf in server.params.values():
                leaf.add_(1e-3)
            yield client, state


class KeepsOnlyPersonalParts(SequentialEngine):
    """Keeps after tuning what it would keep after a round."""

    def adapt(self, server, tasks, own, lr, phases):
        for client, state in super().adapt(server, tasks, own, lr, phases):
            yield client, {name: tree for name, tree in state.items() if name != "_personal"}


class PredictsWithTheHead(SequentialEngine):
    """Ignores a client's own prediction."""

    def measure_personal(self, server, clients, samples, passes):
        plain = replace(self._problem, method=replace(self._problem.method, own=Own()))
        return SequentialEngine(plain).measure_personal(server, clients, samples, passes)


class ForgetsCounts(SequentialEngine):
    def measure_personal(self, server, clients, samples, passes):
        empty = ((replace(holder, counts=torch.zeros_like(holder.counts)), indices) for holder, indices in clients)
        return super().measure_personal(server, empty, samples, passes)


class MeasuresTheNeighbours(SequentialEngine):
    """Gives each client the totals of the one after it."""

    def measure_personal(self, server, clients, samples, passes):
        found = list(super().measure_personal(server, clients, samples, passes))
        for (client, _), (_, totals) in zip(found, [*found[1:], found[0]], strict=True):
            yield client, totals


class MeasuresOnOneSet(SequentialEngine):
    """Measures everyone on the samples of the first."""

    def measure_personal(self, server, clients, samples, passes):
        chosen = list(clients)
        same = [(holder, chosen[0][1]) for holder, _ in chosen]
        return super().measure_personal(server, same, samples, passes)


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
    (MeasuresTheNeighbours, check_measure, "fedavg"),
    (MeasuresOnOneSet, check_measure, "fedavg"),
    (LosesState, check_two_rounds, "teachers"),
    (LosesState, check_two_rounds, "track"),
    (SwapsStates, check_two_rounds, "track"),
    (TunesFromScratch, check_adapt, "stateful"),
    (TunesFromScratch, check_adapt, "personal_head"),
    (TunesFromScratch, check_adapt, "track"),
    (TunesAllButOne, check_adapt, "fedavg"),
    (TunesAtAnotherRate, check_adapt, "fedavg"),
    (TunesTheMethodsPhases, check_adapt, "fedavg"),
    (TunesTheNextClient, check_adapt, "personal_head"),
    (TunesTheServersModel, check_adapt, "fedavg"),
    (KeepsOnlyPersonalParts, check_adapt, "fedavg"),
    (IgnoresOwnParts, check_own_model, "own_state"),
    (PredictsWithTheHead, check_own_model, "own_state"),
    (PredictsWithTheHead, check_own_model, "own_logits"),
    (ForgetsCounts, check_own_model, "own_logits"),
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


def takes_padding():
    """A method that breaks the rule of masks: it takes the mean over whatever the batch holds."""

    @dataclass(frozen=True, kw_only=True)
    class TakesPadding(Term):
        name: ClassVar[str] = "takes_padding"

        def __call__(self, view):
            return TermValue(1e-3 * view.features.square().mean())

    return replace(fedavg(), losses=(CrossEntropy(), TakesPadding()))


def test_a_method_that_takes_padding_for_samples_is_rejected():
    """Where clients are trained side by side; alone, there is no padding."""
    setup = build(takes_padding(), **BATCH_NORM)
    check_train(SequentialEngine(setup.problem), setup)
    with pytest.raises(AssertionError):
        check_train(engines.get("stacked").make(setup.problem), setup)
