"""A user's module becomes a backbone. The stand-ins have the attributes of torchvision's and timm's models."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.network import build_network
from fedblade.core.streams import Streams
from fedblade.heads import LinearHead
from fedblade.models import as_backbone
from fedblade.models.mlp import Mlp

IMAGES = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
CLASSES = 7


class TorchvisionResNet(nn.Module):
    """`fc` is the classifier (also RegNet, ShuffleNet)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(6, CLASSES)

    def before(self, x):
        return torch.flatten(self.avgpool(torch.relu(self.bn1(self.conv1(x)))), 1)

    def forward(self, x):
        return self.fc(self.before(x))


class TorchvisionVgg(nn.Module):
    """`features` is a submodule, `classifier` three linear layers; the features are what the last one is given."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(True), nn.MaxPool2d(2))
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(12, 10), nn.ReLU(True), nn.Dropout(), nn.Linear(10, 9), nn.ReLU(True), nn.Dropout(),
            nn.Linear(9, CLASSES),
        )  # fmt: skip

    def before(self, x):
        return self.classifier[:-1](torch.flatten(self.avgpool(self.features(x)), 1))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class TorchvisionMobileNet(nn.Module):
    """`classifier` is dropout and a linear layer (also EfficientNet)."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU6(True))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(5, CLASSES))

    def before(self, x):
        return self.classifier[0](self.features(x).mean((2, 3)))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class TorchvisionDenseNet(nn.Module):
    """`features` is a submodule and `classifier` a linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5))
        self.classifier = nn.Linear(5, CLASSES)

    def before(self, x):
        return torch.relu(self.features(x)).mean((2, 3))

    def forward(self, x):
        return self.classifier(self.before(x))


class TorchvisionConvNeXt(nn.Module):
    """`classifier` normalises and flattens before its linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 5, 3))
        self.classifier = nn.Sequential(nn.GroupNorm(1, 5), nn.Flatten(1), nn.Linear(5, CLASSES))

    def before(self, x):
        return self.classifier[:2](self.features(x).mean((2, 3), keepdim=True))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3), keepdim=True))


class TorchvisionVit(nn.Module):
    """`heads` is a sequence with the linear layer `head`; the encoder has linear layers too."""

    def __init__(self):
        super().__init__()
        self.conv_proj = nn.Conv2d(1, 8, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(8, CLASSES)))

    def before(self, x):
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        return self.encoder(torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1))[:, 0]

    def forward(self, x):
        return self.heads(self.before(x))


class TorchvisionSwin(nn.Module):
    """`head` is the classifier."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, CLASSES)

    def before(self, x):
        return self.norm(self.features(x))

    def forward(self, x):
        return self.head(self.before(x))


class WithSoftmax(TorchvisionDenseNet):
    """What follows the linear layer goes with it."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(5, CLASSES), nn.LogSoftmax(1))


class TimmResNet(nn.Module):
    """Two halves, `num_features` and `reset_classifier`."""

    def __init__(self):
        super().__init__()
        self.num_features = self.head_hidden_size = 6
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
        self.fc = nn.Linear(6, CLASSES)

    def reset_classifier(self, num_classes, global_pool=None):
        self.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()

    def forward_features(self, x):
        return torch.relu(self.conv1(x))

    def forward_head(self, x, pre_logits: bool = False):
        x = self.global_pool(x)
        return x if pre_logits else self.fc(x)

    def before(self, x):
        return self.global_pool(self.forward_features(x))

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


class TimmConvNeXt(TimmResNet):
    """The classifier inside a head module, and stages that are a module, not names."""

    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Identity())
        self.dim = CLASSES
        self.head = nn.Module()
        self.head.norm = nn.LayerNorm(6)
        self.head.fc = nn.Linear(6, CLASSES)
        del self.fc

    def reset_classifier(self, num_classes, global_pool=None):
        self.head.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()

    def forward_head(self, x, pre_logits: bool = False):
        x = self.head.norm(self.global_pool(x))
        return x if pre_logits else self.head.fc(x)

    def before(self, x):
        return self.head.norm(self.global_pool(self.forward_features(x)))


TORCHVISION = [
    (TorchvisionResNet, 6), (TorchvisionVgg, 9), (TorchvisionMobileNet, 5), (TorchvisionDenseNet, 5),
    (TorchvisionConvNeXt, 5), (TorchvisionVit, 8), (TorchvisionSwin, 8), (WithSoftmax, 5),
]  # fmt: skip
TIMM = [(TimmResNet, 6), (TimmConvNeXt, 6)]


@pytest.mark.parametrize(("make", "dim"), TORCHVISION + TIMM)
def test_the_classifier_is_taken_off_a_copy(make, dim):
    module = make().eval()
    kept = copy.deepcopy(module.state_dict())
    body = as_backbone(module)
    features = body.eval()(IMAGES)
    assert features.shape == (len(IMAGES), dim)
    assert torch.equal(features, module.before(IMAGES))
    assert module(IMAGES).shape == (len(IMAGES), CLASSES)
    assert module.state_dict().keys() == kept.keys()
    with torch.no_grad():
        for leaf in body.parameters():
            leaf.zero_()
    assert all(torch.equal(leaf, kept[name]) for name, leaf in module.state_dict().items())


@pytest.mark.parametrize(("make", "dim"), TORCHVISION + TIMM)
def test_no_parameter_of_the_classifier_is_left(make, dim):
    """What is left trains; a classifier left behind would be sent round without ever being used."""
    body = as_backbone(make())
    features = body(IMAGES)
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((features * weights).sum(), list(body.parameters()), allow_unused=True)
    assert all(each is not None for each in gradients)


@pytest.mark.parametrize(("make", "dim"), TORCHVISION + TIMM)
def test_a_backbone_stays_one(make, dim):
    """`run` adapts what it is given, and what it adapted again when it builds the network."""
    body = as_backbone(make())
    assert as_backbone(body) is body
    clone = copy.deepcopy(body)
    assert as_backbone(clone) is clone
    network, *_ = build_network(lambda: as_backbone(clone), LinearHead(), 3, IMAGES[:1], Streams(0))
    assert network.dim == dim


class WithMethod(TorchvisionResNet):
    dim = 6
    stages = ("conv1", "bn1")

    def features(self, x):
        return self.before(x) * 2


def test_a_features_method_comes_first():
    module = WithMethod().eval()
    body = as_backbone(module)
    assert torch.equal(body(IMAGES), 2 * module.before(IMAGES))
    assert as_backbone(body) is body
    assert [body.get_submodule(name) for name in body.stages] == [module.conv1, module.bn1]


def test_stages_that_are_modules_are_not_names():
    assert as_backbone(TimmConvNeXt()).stages == ()


def test_a_declared_width_says_that_the_output_is_the_features():
    module = TorchvisionResNet()
    module.dim = CLASSES
    assert as_backbone(module) is module


class InnerFc(nn.Module):
    """`fc` is not the last layer, so it is no classifier."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 5)
        self.out = nn.Linear(5, 4)

    def forward(self, x):
        return self.out(torch.relu(self.fc(x.flatten(1))))


class OwnHead(nn.Module):
    """`head` is a module of the user's own: what it does is not known."""

    def __init__(self):
        super().__init__()
        self.head = InnerFc()

    def forward(self, x):
        return self.head(x)


class SqueezeNetLike(nn.Module):
    """A classifier without a linear layer is not recognised."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 5, 3))
        self.classifier = nn.Sequential(nn.Conv2d(5, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x):
        return self.classifier(self.features(x))


@pytest.mark.parametrize(
    "make",
    [
        InnerFc,
        OwnHead,
        SqueezeNetLike,
        nn.Flatten,
        lambda: nn.Linear(3, 2),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5)),
        lambda: Mlp((64,), (8,), 4, "none"),
    ],
)
def test_anything_else_is_used_as_it_is(make):
    module = make()
    assert as_backbone(module) is module


def test_halves_without_the_rest_of_timm_are_not_timm():
    module = TimmResNet()
    del module.num_features
    assert torch.equal(as_backbone(module)(IMAGES), module.before(IMAGES))
    assert isinstance(as_backbone(module).module.fc, nn.Identity)


def test_auxiliary_classifiers_are_refused():
    module = TorchvisionResNet()
    module.aux_logits = True
    with pytest.raises(Misconfigured, match=r"TorchvisionResNet has auxiliary classifiers.*aux_logits=False"):
        as_backbone(module)
    module.aux_logits = False
    assert as_backbone(module)(IMAGES).shape == (4, 6)


@pytest.mark.parametrize("given", [3, TorchvisionResNet, None])
def test_what_is_no_module_is_refused(given):
    with pytest.raises(Misconfigured, match=r"expected a torch\.nn\.Module that returns features"):
        as_backbone(given)


def test_a_run_with_a_torchvision_classifier(tmp_path):
    """Two linear layers stay in front of the classifier: taking off one more would change the width."""
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0)).numpy()
    labels = torch.arange(40).remainder(2).numpy()
    module = TorchvisionVgg().eval()
    settings = {"num_clients": 2, "clients_per_round": 2, "rounds": 1, "method": "fedavg", "engine": "sequential"}
    fedblade.run(model=module, dataset=(images, labels, images, labels), out=tmp_path / "run", **settings)
    trained = fedblade.load(tmp_path / "run", model=module)
    assert trained.features(torch.from_numpy(images[:3])).shape == (3, 9)
