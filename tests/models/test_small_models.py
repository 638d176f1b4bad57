"""Models: shapes, initial weights shared by all methods, and a user's own modules."""

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.registry import models
from fedblade.core.tree import tree_digest
from fedblade.models import Backbone
from fedblade.runs import load_config, prepare

SMALL = {"num_clients": 6, "clients_per_round": 3, "rounds": 2, "epochs": 1, "method": "fedavg"}


def parameters(module: nn.Module) -> int:
    return sum(leaf.numel() for leaf in module.parameters())


@pytest.mark.parametrize(("shape", "dim"), [((1, 8, 8), 128), ((3, 32, 32), 64), ((1, 4, 4), 5), ((2, 9, 13), 7)])
def test_small_cnn_has_the_documented_shape(shape, dim):
    channels, height, width = shape
    model = models.get("small_cnn").make(shape, dim=dim)
    assert model(torch.zeros(3, *shape)).shape == (3, dim)
    convolutions = 16 * channels * 9 + 32 * 16 * 9 + 2 * (16 + 32)
    assert parameters(model) == convolutions + 32 * (height // 4) * (width // 4) * dim + dim


def test_small_cnn_ends_with_a_relu():
    model = models.get("small_cnn").make((1, 8, 8))
    features = model(torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert features.min() == 0
    assert (features > 0).any()


@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 3, 8)])
def test_small_cnn_refuses_what_is_no_image(shape):
    with pytest.raises(Misconfigured, match="model=mlp"):
        models.get("small_cnn").make(shape)


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8), (2, 3, 4, 5)])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 9)])
def test_mlp_takes_inputs_of_any_shape(shape, hidden):
    model = models.get("mlp").make(shape, hidden=hidden, dim=6)
    assert model(torch.zeros(3, *shape)).shape == (3, 6)
    widths = [int(np.prod(shape)), *hidden, 6]
    assert parameters(model) == sum(a * b + b for a, b in pairwise(widths))


def test_mlp_normalises_before_each_relu_if_asked():
    model = models.get("mlp").make((5,), hidden=(7,), dim=6, norm="batch")
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2


@pytest.mark.parametrize("name", ["small_cnn", "mlp"])
def test_stages_name_submodules(name):
    model = models.get(name).make((1, 8, 8))
    assert isinstance(model, Backbone)
    assert model.stages
    assert all(isinstance(model.get_submodule(stage), nn.Module) for stage in model.stages)


@pytest.mark.parametrize("knobs", [{"dim": 0}, {"dim": -3}, {"hidden": [0]}, {"hidden": [-3]}])
def test_widths_that_are_not_positive_are_refused(knobs):
    with pytest.raises(Misconfigured, match=next(iter(knobs))):
        fedblade.run(model="mlp", **SMALL, **knobs)


def start(method: str, seed: int = 1, **changes):
    return prepare(load_config(None, {"method": method, "seed": seed, **changes})[0]).start


def body(method: str, **changes) -> str:
    return tree_digest({n: leaf for n, leaf in start(method, **changes).params.items() if n.startswith("body.")})


@pytest.mark.parametrize("model", ["small_cnn", "mlp"])
def test_all_methods_of_a_seed_start_from_the_same_body(model):
    bodies = {body(method, model=model) for method in ("fedavg", "fedprox", "fedetf", "fedblade", "feddecorr")}
    assert len(bodies) == 1
    assert body("fedavg", model=model, seed=2) not in bodies


def test_methods_with_the_same_head_start_from_the_same_head():
    heads = [tree_digest(start(method).params) for method in ("fedavg", "fedprox", "feddecorr")]
    assert len(set(heads)) == 1


def global_states() -> tuple:
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("changes", [{"model": "mlp"}, {"augment": "crop_flip", "method": "fedblade"}])
def test_a_run_leaves_the_global_generators_alone(changes):
    before = global_states()
    fedblade.run(**(SMALL | changes))
    assert global_states() == before


def test_the_global_generators_do_not_change_a_run():
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        results.append(fedblade.run(model="small_cnn", **SMALL))
    assert tree_digest(dict(results[0].model.state_dict())) == tree_digest(dict(results[1].model.state_dict()))


class WithFeatures(nn.Module):
    """A classifier whose features are a method, as in timm."""

    def __init__(self) -> None:
        super().__init__()
        self.extract = nn.Sequential(nn.Flatten(), nn.Linear(64, 11), nn.ReLU())
        self.classifier = nn.Linear(11, 10)

    def features(self, inputs: Tensor) -> Tensor:
        return self.extract(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.classifier(self.features(inputs))


class WithFeatureModule(nn.Module):
    """A network whose `features` is a submodule, as in torchvision; its output is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Flatten()
        self.last = nn.Linear(64, 13)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.features(inputs))


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.ReLU())


@pytest.mark.parametrize(("make", "dim"), [(WithFeatures, 11), (WithFeatureModule, 13), (plain, 9)])
def test_a_users_module_is_trained_and_left_as_it_was(make: Callable[[], nn.Module], dim, tmp_path):
    module = make()
    before, mode = tree_digest(dict(module.state_dict())), module.training
    result = fedblade.run(model=module, out=tmp_path / "run", **SMALL)
    assert tree_digest(dict(module.state_dict())) == before
    assert module.training == mode
    images = np.random.default_rng(0).integers(0, 17, (6, 1, 8, 8), dtype=np.uint8)
    assert result.model.features(torch.from_numpy(images)).shape == (6, dim)
    assert result.summary["model"] == "object"
    loaded = fedblade.load(tmp_path / "run", model=make())
    assert torch.equal(loaded.predict(images), result.model.predict(images))


def test_loading_leaves_the_users_module_as_it_was(tmp_path):
    fedblade.run(model=plain(), out=tmp_path / "run", **SMALL)
    module = plain()
    before = tree_digest(dict(module.state_dict()))
    fedblade.load(tmp_path / "run", model=module)
    assert tree_digest(dict(module.state_dict())) == before
    assert module.training


def test_a_users_module_starts_from_its_own_weights():
    module = plain()
    torch.nn.init.constant_(module[1].weight, 0.25)
    setup = prepare(load_config(None, {**SMALL, "model": "object"})[0], model=module)
    assert torch.equal(setup.start.params["body.1.weight"], torch.full((9, 64), 0.25))


def test_loading_without_the_users_module_says_what_to_do(tmp_path):
    fedblade.run(model=plain(), out=tmp_path / "run", **SMALL)
    with pytest.raises(Misconfigured, match="from Python as an object") as caught:
        fedblade.load(tmp_path / "run")
    assert "load" in str(caught.value)


class OutOfReach(nn.Module):
    """A module that raises something else than torch does."""

    def forward(self, inputs: Tensor, more: Tensor) -> Tensor:
        return inputs + more


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (5, ["int", "torch.nn.Module"]),
        (nn.Linear, ["type", "torch.nn.Module"]),
        (nn.Conv2d(1, 2, 3), ["(2, 2, 6, 6)", "[2, dim]"]),
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 5)), ["(1, 8, 8)"]),
        (OutOfReach(), ["OutOfReach", "(1, 8, 8)"]),
    ],
    ids=["number", "class", "maps", "width", "signature"],
)
def test_modules_that_do_not_fit_are_refused_in_one_line(module, words):
    with pytest.raises(Misconfigured) as caught:
        fedblade.run(model=module, **SMALL)
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []
