"""EfficientNet: squeeze-excite, the two variants, and weights from a file."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import models
from fedblade.models.efficientnet import MobileBlock, SqueezeExcite
from support.model_cases import conv_bn, randomised

ROWS = [(1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1), (6, 192, 4, 5, 2),
        (6, 320, 1, 3, 1)]  # fmt: skip


def slow_squeeze_excite(module, maps):
    """One sample and one channel at a time."""
    scaled = torch.empty_like(maps)
    for sample in range(len(maps)):
        means = torch.stack([channel.sum() / channel.numel() for channel in maps[sample]])
        hidden = module.fc1.weight[:, :, 0, 0] @ means + module.fc1.bias
        hidden = hidden / (1 + torch.exp(-hidden))
        gates = 1 / (1 + torch.exp(-(module.fc2.weight[:, :, 0, 0] @ hidden + module.fc2.bias)))
        for channel, gate in enumerate(gates):
            scaled[sample, channel] = maps[sample, channel] * gate
    return scaled


def test_squeeze_excite_against_a_slow_version():
    torch.manual_seed(0)
    module = SqueezeExcite(8, 2).double()
    maps = torch.randn(3, 8, 5, 4, dtype=torch.float64, requires_grad=True)
    outputs, expected = module(maps), slow_squeeze_excite(module, maps)
    torch.testing.assert_close(outputs, expected)
    weights = torch.randn_like(outputs)
    leaves = (maps, *module.parameters())
    found = torch.autograd.grad((outputs * weights).sum(), leaves)
    for one, other in zip(found, torch.autograd.grad((expected * weights).sum(), leaves), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("name", "small"), [("efficientnet_b0_small", True), ("efficientnet_b0", False)])
def test_blocks_are_the_rows_of_the_papers_table(name, small):
    with torch.device("meta"):
        body = models.get(name).make((3, 32, 32))
    assert body.stem[0].stride == ((1, 1) if small else (2, 2))
    assert (body.top is None) == small
    assert {type(m) for m in body.modules() if isinstance(m, nn.ReLU | nn.SiLU | nn.Dropout)} == {nn.SiLU}
    blocks, width = iter([module for module in body.modules() if isinstance(module, MobileBlock)]), 32
    for expansion, width_out, repeats, kernel, first_stride in ROWS:
        for index in range(repeats):
            block, stride = next(blocks), first_stride if index == 0 else 1
            assert (block.expand is None) == (expansion == 1 and not small)
            middle = block.depthwise[0]
            assert (middle.kernel_size, middle.stride) == ((kernel, kernel), (stride, stride))
            assert middle.groups == middle.in_channels == expansion * width
            assert block.squeeze_excite.fc1.out_channels == (expansion * width if small else width) // 4
            assert block.project[0].out_channels == width_out
            if stride == 1 and width == width_out:
                assert isinstance(block.shortcut, nn.Identity)
            else:
                assert isinstance(block.shortcut, nn.Sequential) == (small and stride == 1)
            width = width_out
    assert next(blocks, None) is None


@pytest.mark.parametrize("name", ["efficientnet_b0_small", "efficientnet_b0"])
@torch.no_grad()
def test_against_a_slow_version(name):
    body, inputs = randomised(name, (3, 48, 40))
    swish = nn.functional.silu
    maps = swish(conv_bn(body.stem, inputs))
    for block in (module for module in body.modules() if isinstance(module, MobileBlock)):
        hidden = maps if block.expand is None else swish(conv_bn(block.expand, maps))
        hidden = slow_squeeze_excite(block.squeeze_excite, swish(conv_bn(block.depthwise, hidden)))
        outputs = conv_bn(block.project, hidden)
        if isinstance(block.shortcut, nn.Identity):
            outputs = outputs + maps
        elif block.shortcut is not None:
            outputs = outputs + conv_bn(block.shortcut, maps)
        maps = outputs
    if body.top is not None:
        maps = swish(conv_bn(body.top, maps))
    torch.testing.assert_close(body(inputs), maps.mean((2, 3)))


def torchvision_state():
    """A state dict with torchvision's names and shapes, built from its layout and not from ours."""
    shapes = {}

    def conv_norm(prefix, out, into, kernel):
        shapes[f"{prefix}.0.weight"] = (out, into, kernel, kernel)
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{prefix}.1.{name}"] = (out,)
        shapes[f"{prefix}.1.num_batches_tracked"] = ()

    conv_norm("features.0", 32, 3, 3)
    width = 32
    for number, (expansion, out, repeats, kernel, _) in enumerate(ROWS, start=1):
        for index in range(repeats):
            prefix, part, hidden = f"features.{number}.{index}.block", 0, expansion * width
            if expansion != 1:
                conv_norm(f"{prefix}.{part}", hidden, width, 1)
                part += 1
            conv_norm(f"{prefix}.{part}", hidden, 1, kernel)
            squeezed = width // 4
            shapes |= {
                f"{prefix}.{part + 1}.fc1.weight": (squeezed, hidden, 1, 1),
                f"{prefix}.{part + 1}.fc1.bias": (squeezed,),
                f"{prefix}.{part + 1}.fc2.weight": (hidden, squeezed, 1, 1),
                f"{prefix}.{part + 1}.fc2.bias": (hidden,),
            }
            conv_norm(f"{prefix}.{part + 2}", out, hidden, 1)
            width = out
    conv_norm("features.8", 1280, 320, 1)
    shapes |= {"classifier.1.weight": (1000, 1280), "classifier.1.bias": (1000,)}
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in shapes.items():
        integer = name.endswith("num_batches_tracked")
        state[name] = torch.tensor(7) if integer else torch.rand(shape, generator=generator) * 0.1
    return state


def load(path):
    return models.get("efficientnet_b0").make((3, 32, 32), weights=str(path))


def test_weights_with_torchvisions_names(tmp_path):
    state, path = torchvision_state(), tmp_path / "b0.safetensors"
    save_file(state, path)
    loaded = load(path).state_dict()
    pairs = {
        "stem.0.weight": "features.0.0.weight",
        "stage1.0.depthwise.0.weight": "features.1.0.block.0.0.weight",
        "stage1.0.squeeze_excite.fc2.bias": "features.1.0.block.1.fc2.bias",
        "stage1.0.project.1.running_var": "features.1.0.block.2.1.running_var",
        "stage6.3.expand.0.weight": "features.6.3.block.0.0.weight",
        "stage6.3.depthwise.1.bias": "features.6.3.block.1.1.bias",
        "stage6.3.squeeze_excite.fc1.weight": "features.6.3.block.2.fc1.weight",
        "stage6.3.project.0.weight": "features.6.3.block.3.0.weight",
        "top.1.running_mean": "features.8.1.running_mean",
    }
    for ours, theirs in pairs.items():
        assert torch.equal(loaded[ours], state[theirs]), ours
    given = [leaf for name, leaf in state.items() if name.startswith("features") and leaf.dim() > 0]
    assert len(given) == sum(leaf.dim() > 0 for leaf in loaded.values())
    total = sum(leaf.double().sum() for leaf in given)
    assert sum(leaf.double().sum() for leaf in loaded.values() if leaf.dim() > 0).item() == pytest.approx(total.item())


def one_line(caught):
    assert "\n" not in str(caught.value)
    return True


def test_weights_that_do_not_fit_are_refused(tmp_path):
    state, path = torchvision_state(), tmp_path / "b0.safetensors"
    with pytest.raises(Misconfigured, match=r"model\.weights '.*' does not exist\. Give the path") as caught:
        load(path)
    assert one_line(caught)
    path.write_bytes(b"not a safetensors file")
    with pytest.raises(Misconfigured, match=r"cannot be read as safetensors: .*save_file") as caught:
        load(path)
    assert one_line(caught)
    missing = {name: leaf for name, leaf in state.items() if name != "features.8.0.weight"}
    save_file(missing, path)
    with pytest.raises(
        Misconfigured, match=r"has no tensor 'features\.8\.0\.weight'; expected the \d+ names"
    ) as caught:
        load(path)
    assert one_line(caught)
    save_file({**state, "features.9.0.weight": torch.zeros(1)}, path)
    with pytest.raises(Misconfigured, match=r"has a tensor 'features\.9\.0\.weight' of another model"):
        load(path)
    save_file({**state, "features.0.0.weight": torch.zeros(32, 1, 3, 3)}, path)
    with pytest.raises(Misconfigured, match=r"of shape \(32, 1, 3, 3\); expected \(32, 3, 3, 3\)"):
        load(path)


def test_weights_need_no_classifier_and_no_counters(tmp_path):
    state, path = torchvision_state(), tmp_path / "b0.safetensors"
    bare = {n: t for n, t in state.items() if n.startswith("features") and not n.endswith("num_batches_tracked")}
    save_file(bare, path)
    assert torch.equal(load(path).top[0].weight, state["features.8.0.weight"])
