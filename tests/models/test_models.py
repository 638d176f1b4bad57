"""What every registered model promises."""

import inspect
from itertools import product

import pytest
import torch
from torch.func import functional_call

from fedblade.core.errors import Misconfigured
from fedblade.core.network_building import BodyOptions, build_network
from fedblade.core.registry import models
from fedblade.core.streams import Streams
from fedblade.heads import LinearHead
from fedblade.models import Backbone, as_backbone
from fedblade.models.resnet import ResNet
from support.for_every import for_every
from support.model_cases import CASES, IMAGE_CASES

A, B = {"shortcut": "A"}, {"shortcut": "B"}


@pytest.mark.parametrize(
    ("name", "knobs", "num_classes", "expected"),
    [
        ("mobilenet_v2", {}, 10, 2_296_922),
        ("mobilenet_v2", {}, 100, 2_412_212),
        ("mobilenet_v1", {}, 10, 3_217_226),
        ("mobilenet_v1", {}, 100, 3_309_476),
        ("resnet18", {}, 10, 11_173_962),
        ("resnet18", {}, 100, 11_220_132),
        ("resnet18_imagenet", {}, 1000, 11_689_512),
        ("resnet20", A, 10, 269_722),
        ("resnet32", A, 10, 464_154),
        ("resnet56", A, 10, 853_018),
        ("resnet20", B, 10, 272_474),
        ("resnet32", B, 10, 466_906),
        ("resnet56", B, 10, 855_770),
        ("wrn56_4", {}, 10, 13_628_234),
        ("densenet121", {}, 10, 6_956_298),
        ("efficientnet_b0_small", {}, 10, 6_806_794),
        ("efficientnet_b0", {}, 1000, 5_288_548),
        ("vgg11", {}, 10, 9_750_922),
        ("alexnet_bn", {}, 10, 57_063_498),
    ],
)
def test_parameter_counts(name, knobs, num_classes, expected):
    """Counted with a linear head."""
    with torch.device("meta"):
        body = models.get(name).make((3, 64, 64), **knobs)
    count = sum(leaf.numel() for leaf in body.parameters())
    assert count + (body.dim + 1) * num_classes == expected


def test_parameter_counts_by_hand():
    def count(body):
        return sum(leaf.numel() for leaf in body.parameters())

    with torch.device("meta"):
        lstm, femnist = models.get("char_lstm").make((80,)), models.get("cnn_femnist").make((1, 28, 28))
    assert count(lstm) == 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)
    assert count(femnist) == (25 + 1) * 32 + (32 * 25 + 1) * 64 + (64 * 7 * 7 + 1) * 2048


def test_every_registered_model_is_tested_here():
    own = {entry.name for entry in models.entries() if entry.make.__module__.startswith("fedblade.")}
    assert own == {case.name for case in CASES}


def test_only_the_input_shape_has_no_default(case):
    parameters = inspect.signature(models.get(case.name).make).parameters
    assert [name for name, each in parameters.items() if each.default is inspect.Parameter.empty] == ["input_shape"]
    assert models.get(case.name).summary.endswith((".", ":", ";"))


def test_features_have_the_promised_width_in_both_modes(case, body):
    assert isinstance(body, Backbone)
    assert as_backbone(body, case.inputs()[:1], 3).body is body
    for training in (True, False):
        features = body.train(training).features(case.inputs())
        assert features.shape == (4, case.dim) == (4, body.dim)
        assert torch.isfinite(features).all()
        assert features.std() > 0


def test_sizes(case):
    for size in case.sizes:
        shape = (case.shape[0], size, size)
        body = models.get(case.name).make(shape).eval()
        with torch.no_grad():
            assert body(torch.zeros(1, *shape)).shape == (1, case.dim)


def test_one_body_takes_several_sizes(pooled_case):
    channels, height, width = pooled_case.shape
    with torch.device("meta"):
        body = pooled_case.make().eval()
        assert body(torch.zeros(2, channels, height + 5, width + 16)).shape == (2, pooled_case.dim)


def test_stages_run_in_order_and_can_be_tapped(case, body):
    """Each stage returns [batch, channels, …] once, and nothing later writes into what a tap holds."""
    ran, held = [], []

    def tap(name):
        def hook(module, inputs, output):
            ran.append(name)
            held.append((output, output.detach().clone()))

        return hook

    handles = [body.get_submodule(name).register_forward_hook(tap(name)) for name in body.stages]
    try:
        body(case.inputs())
    finally:
        for handle in handles:
            handle.remove()
    assert tuple(ran) == body.stages
    assert all(torch.equal(output, copy) for output, copy in held)
    if case.name != "mlp":
        assert tuple(output.shape[1] for output, _ in held) == case.widths
        assert all(output.dim() >= 3 for output, _ in held)


@pytest.mark.parametrize(
    "name", ["mobilenet_v1", "mobilenet_v2", "resnet18", "resnet18_imagenet", "resnet20", "densenet121"]
)
def test_the_last_stage_is_the_features_before_relu_and_pooling(name):
    body = models.get(name).make((3, 32, 32)).eval()
    held = []
    body.get_submodule(body.stages[-1]).register_forward_hook(lambda module, inputs, output: held.append(output))
    features = body(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert (held[0] < 0).any()
    torch.testing.assert_close(held[0].clamp(min=0).mean((2, 3)), features)


def test_gradients_reach_every_parameter(case, body):
    names, leaves = zip(*body.named_parameters(), strict=True)
    features = body(case.inputs())
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((features * weights).sum(), leaves, allow_unused=True)
    dead = [name for name, each in zip(names, gradients, strict=True) if each is None or not each.any()]
    assert dead == []
    assert all(torch.isfinite(each).all() for each in gradients)


def build(case, dtype=torch.float32, seed=0, **options):
    return build_network(
        case.make, LinearHead(), 3, torch.zeros(1, *case.shape, dtype=dtype), Streams(seed), BodyOptions(**options)
    )


def test_the_init_stream_decides_the_start(case, body):
    torch.manual_seed(1)
    network, first, buffers, _ = build(case)
    torch.manual_seed(2)
    _, second, *_ = build(case)
    assert network.dim == case.dim
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = [name for name in first if first[name].std() > 0]
    assert drawn
    other = body.state_dict()  # from another seed
    assert not any(torch.equal(first[name], other[name.removeprefix("body.")]) for name in drawn if "head" not in name)
    assert all(torch.isfinite(leaf).all() for leaf in (*first.values(), *buffers.values()))


def test_batch_statistics_are_used_at_test_time_too(case):
    network, params, buffers, _ = build(case, norm_stats="batch")
    assert buffers == {}
    inputs = case.inputs()
    with torch.no_grad():
        trained = network.features(params, buffers, inputs, training=True)
        tested = network.features(params, buffers, inputs, training=False)
    assert torch.equal(trained, tested)


@torch.no_grad()
def test_float64_through_functional_call(case, body):
    """The tensors passed in are the ones used, running statistics are updated in them, and float64 stays float64."""
    params = {name: leaf.double() for name, leaf in body.named_parameters()}
    buffers = {name: leaf.double() if leaf.is_floating_point() else leaf + 0 for name, leaf in body.named_buffers()}
    before = {name: leaf.clone() for name, leaf in buffers.items()}
    inputs = case.inputs(dtype=torch.float64)
    features = functional_call(body, params | buffers, (inputs,))
    assert features.dtype == torch.float64
    torch.testing.assert_close(features.float(), body(case.inputs()), rtol=1e-2, atol=1e-3)
    assert not any(torch.equal(buffers[name], before[name]) for name in before)
    zeros = {name: torch.zeros((), dtype=leaf.dtype).expand_as(leaf) for name, leaf in params.items()}
    assert not functional_call(body, zeros | before, (inputs,)).any()


def test_the_graph_can_be_traced(case, body):
    """No branch depends on data or batch size, so engines and exporters may trace a model."""
    traced = torch.fx.symbolic_trace(body.eval())
    inputs = case.inputs(batch=3)
    with torch.no_grad():
        assert torch.equal(traced(inputs), body(inputs))


@for_every(product(IMAGE_CASES, [(7,), (3, 32), (0, 32, 32), (3, 0, 32), (2, 3, 32, 32), ()]))
def test_inputs_that_are_no_images_are_refused(image_case, shape):
    with torch.device("meta"), pytest.raises(Misconfigured, match=f"model '{image_case.name}' got inputs") as caught:
        models.get(image_case.name).make(shape)
    assert str(shape) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "smallest"), [("vgg11", 32), ("alexnet_bn", 63), ("densenet121", 8), ("cnn_femnist", 4)]
)
def test_images_that_are_too_small_are_refused(name, smallest):
    make = models.get(name).make
    with torch.device("meta"):
        assert make((3, smallest, smallest))(torch.zeros(2, 3, smallest, smallest)).shape[0] == 2
        with pytest.raises(Misconfigured, match=f"at least {smallest}×{smallest} pixels"):
            make((3, smallest, smallest - 1))


def test_images_of_one_channel(image_case):
    _, *size = image_case.shape
    with torch.device("meta"):
        body = models.get(image_case.name).make((1, *size))
        assert body(torch.zeros(2, 1, *size)).shape == (2, image_case.dim)


@pytest.mark.parametrize("shape", [(3, 32, 32), (), (0,), (80, 2)])
def test_char_lstm_refuses_what_is_no_sequence(shape):
    with pytest.raises(Misconfigured, match=r"model 'char_lstm' got inputs of shape .*expected sequences \(steps,\)"):
        models.get("char_lstm").make(shape)


def test_a_mistyped_knob_is_named():
    make = models.get("resnet20").make
    with pytest.raises(Misconfigured, match=r"model 'resnet20' has no shortcut 'C'\. Choose from: A, B\."):
        make((3, 8, 8), shortcut="C")
    with pytest.raises(Misconfigured, match=r"model 'resnet20' has no init 'hee'\. Did you mean 'he'\?"):
        make((3, 8, 8), init="hee")
    assert isinstance(make((3, 8, 8), shortcut="B", init="default"), ResNet)


@pytest.mark.parametrize(
    ("name", "shape", "knob", "given"),
    [
        ("small_cnn", (1, 8, 8), "dim", 0),
        ("mlp", (4,), "dim", -3),
        ("mlp", (4,), "hidden", (8, 0)),
        ("char_lstm", (80,), "num_characters", 0),
    ],
)
def test_knobs_that_count_are_positive(name, shape, knob, given):
    with pytest.raises(
        Misconfigured, match=rf"model '{name}' has {knob} = -?\d; expected a whole number of at least 1"
    ):
        models.get(name).make(shape, **{knob: given})
