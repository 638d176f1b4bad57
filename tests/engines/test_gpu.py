"""What runs on a GPU alone: steps that are captured and replayed."""

import gc
from dataclasses import replace

import pytest
import torch

from fedblade.core.outcome import train_client
from fedblade.core.problem import MOMENTUM
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.engines import _slots
from fedblade.losses import CrossEntropy, LDDecorr
from fedblade.losses._lddecorr import _LogDet
from fedblade.methods.fedavg import fedavg
from fedblade.runs import prepare
from fedblade.runs._device import float32_products
from support.conformance import LR, check_two_rounds
from support.gpu import NEEDS_GPU
from support.own_modules import FROZEN, half_frozen
from support.slots import slots_of
from support.small_federation import BATCH_NORM, CNN, build, configure, images, read_anew, tasks, vectors

pytestmark = NEEDS_GPU
MILD = {"lambda_decorr": 1e-4}
METHODS = {"fedavg": {}, "scaffold": {}, "fedblade": MILD, "fedntd": {}}


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 would hide what is compared here."""
    with float32_products(tf32=False):
        yield


def make(method, data=None, *, dtype="float64", **overrides):
    setup = build(method, data, device="cuda", dtype=dtype, **METHODS[method], **overrides)
    engine = engines.get("stacked").make(setup.problem)
    assert slots_of(engine) is not None, "one captured step serves these methods"
    return engine, setup


@pytest.mark.parametrize(
    "overrides", [BATCH_NORM, {}, {"persist": True, "clip": 0.5}], ids=["norm", "plain", "persist"]
)
@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_with_the_clients_one_by_one(method, overrides, monkeypatch):
    """In float64, with four clients taking turns in two slots, over two rounds from equal states."""
    monkeypatch.setattr(_slots, "MOST_SLOTS", 2)
    check_two_rounds(*make(method, **overrides))


def test_captured_steps_leave_frozen_layers_as_they_are(monkeypatch):
    monkeypatch.setattr(_slots, "MOST_SLOTS", 2)
    setup = prepare(configure("scaffold", model="object", device="cuda"), vectors(), half_frozen())
    assert setup.problem.network.frozen == FROZEN
    check_two_rounds(engines.get("stacked").make(setup.problem), setup)


@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_on_augmented_images(method):
    check_two_rounds(*make(method, images(60, 10), **CNN, **{"dataset.augment": "crop_flip"}))


def test_samples_that_the_host_reads_are_not_captured():
    changes = {"proto.transform": "train", "dataset.augment": "crop_flip"}
    setup = build("fedblade", read_anew(images(60, 10)), device="cuda", dtype="float64", **CNN, **MILD, **changes)
    engine = engines.get("stacked").make(setup.problem)
    assert slots_of(engine) is None
    check_two_rounds(engine, setup)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_captures_of_several_sizes_agree(slots, monkeypatch):
    """Small batches, so that clients end at different ticks, move and leave slots idle."""
    monkeypatch.setattr(_slots, "MOST_SLOTS", slots)
    engine, setup = make("fedblade", **BATCH_NORM, **{"local.batch_size": 4})
    check_two_rounds(engine, setup)
    assert len(slots_of(engine)._memory.sizes) > 1


DEEP = [*((model, "none") for model in ("mobilenet_v1", "mobilenet_v2", "resnet20", "resnet18")), ("resnet20", "bf16")]
"""Models and types; in bfloat16 the other models' own error is as long as the gradient: nothing could be told."""


def deep_gradients(model, *, engine, seed, **changes):
    """The gradient of every client's first step, from the momentum that it keeps; batches are full to varying parts."""
    setup = build("fedavg", images(40, 10, seed), device="cuda", model=model, engine=engine,
                  **{"local.epochs": 1, "local.batch_size": 64, "persist": True}, **changes)  # fmt: skip
    store, cohort = MemoryStore(), tasks(setup)
    setup.engine.train(setup.start, iter(cohort), store, LR, lambda client: None)
    kept = [store.get(task.client, 1)[MOMENTUM] for task in cohort]
    return torch.stack([torch.cat([leaf.double().flatten() for leaf in tree.values()]) for tree in kept])


@pytest.mark.parametrize(("model", "autocast"), DEEP)
def test_a_step_of_a_deep_network_is_as_exact_as_one_client_after_another(model, autocast):
    """Both against float64: each client in the best of four data sets.

    Rounding that carries one value over a ReLU's edge costs 1e-2, with either engine and by chance; what an engine does
    less exactly shows for a client whatever its data.
    """
    errors = {"sequential": [], "stacked": []}
    for seed in range(4):
        exact = deep_gradients(model, engine="sequential", seed=seed, dtype="float64")
        for engine, found in errors.items():
            steps = deep_gradients(model, engine=engine, seed=seed, dtype="float32", autocast=autocast)
            found.append((steps - exact).norm(dim=1) / exact.norm(dim=1))
    usual, found = (torch.stack(each).amin(0) for each in errors.values())
    assert usual.max() < 0.3, "nothing could be told"
    assert (found <= 5 * usual.max() + 1e-5).all(), (
        f"stacked is off by {found.tolist()}, sequential by {usual.tolist()}"
    )


BOUND = 2e-4
"""Distance of the moves of a short round in float32, relative to their length."""


@pytest.mark.parametrize("model", [BATCH_NORM, CNN], ids=["mlp", "cnn"])
@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_agree_in_float32_within_its_arithmetic(method, model):
    data = images(60, 10) if model is CNN else None
    engine, setup = make(method, data, dtype="float32", **model, **{"local.epochs": 1})
    cohort = tasks(setup)
    outcome = engine.train(setup.start, iter(cohort), MemoryStore(), LR, lambda client: None)
    expected = [train_client(setup.problem, setup.start, task, None, LR).sums["delta"] for task in cohort]
    for name in expected[0]:
        wanted = sum(each[name].double() for each in expected)
        gap = (outcome.sums["delta"][name].double() - wanted).norm() / (1e-3 + wanted.norm())
        assert gap <= BOUND, f"{name} differs by {gap:.1e}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", ["mobilenet_v2", "resnet20", "resnet18"])
def test_the_global_model_is_measured_alike(model, dtype):
    """The kernels of the stacked layers and larger batches, against the plain layers."""
    found, wanted = (
        setup.engine.measure(setup.start, setup.test, setup.test_order, setup.accuracy.passes)
        for setup in (
            build("fedavg", images(40, 150), device="cuda", model=model, engine=engine, dtype=dtype)
            for engine in ("stacked", "sequential")
        )
    )  # fmt: skip
    for name, tree in wanted.items():
        for key, leaf in tree.items():
            torch.testing.assert_close(found[name][key], leaf, rtol=1e-9 if dtype == "float64" else 1e-4, atol=1e-9)


def test_two_rounds_of_one_shape_share_a_capture():
    engine, setup = make("fedavg", **BATCH_NORM)
    check_two_rounds(engine, setup)
    held = slots_of(engine)._memory
    engine.train(setup.start, iter(tasks(setup)), MemoryStore(), LR, lambda client: None)
    assert slots_of(engine)._memory is held


def test_a_method_that_waits_for_the_gpu_trains_without_captures_and_leaves_the_gpu_usable(monkeypatch):
    # Where a factorisation can fail, the host looks whether it did.
    monkeypatch.setattr(_LogDet, "_cannot_fail", lambda self, Z: False)
    method = replace(fedavg(), losses=(CrossEntropy(), LDDecorr(weight=1e-4)))
    setup = build(method, device="cuda", dtype="float64", **BATCH_NORM)
    gc.collect()
    torch.cuda.empty_cache()
    before, stream = torch.cuda.memory_reserved(), torch.cuda.current_stream()
    with pytest.warns(UserWarning, match="the host waits for the GPU"):
        check_two_rounds(engines.get("stacked").make(setup.problem), setup)
    assert torch.cuda.current_stream() == stream
    torch.rand(1, device="cuda")
    check_two_rounds(*make("fedavg", **BATCH_NORM))
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 2**26, "nothing but what torch's libraries keep"
