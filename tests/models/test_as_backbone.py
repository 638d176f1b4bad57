"""A user's module becomes a backbone. The stand-ins have the attributes of torchvision's and timm's models."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.models import as_backbone
from fedblade.models.mlp import Mlp

IMAGES = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
CLASSES = 7


def adapted(module, classes=CLASSES, output="auto"):
    return as_backbone(module, IMAGES[:1], classes, output)


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
    body = adapted(module).body
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
    body = adapted(make()).body
    features = body(IMAGES)
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((features * weights).sum(), list(body.parameters()), allow_unused=True)
    assert all(each is not None for each in gradients)


class WithMethod(TorchvisionResNet):
    dim = 6
    stages = ("conv1", "bn1")

    def features(self, x):
        return self.before(x) * 2


def test_a_features_method_comes_first():
    module = WithMethod().eval()
    body = adapted(module).body
    assert torch.equal(body(IMAGES), 2 * module.before(IMAGES))
    assert [body.get_submodule(name) for name in body.stages] == [module.conv1, module.bn1]


class WithTheSameFeatures(TorchvisionResNet):
    def features(self, x):
        return self.before(x)


def test_a_last_layer_behind_a_features_method_is_cut_off_too():
    """It would travel without being used."""
    module = WithTheSameFeatures().eval()
    found = adapted(module)
    assert torch.equal(found.body(IMAGES), module.before(IMAGES))
    assert torch.equal(found.classifier.weight, module.fc.weight)
    assert not any("fc" in name for name, _ in found.body.named_parameters())
    assert adapted(module, CLASSES + 1).classifier is None
    assert adapted(WithMethod()).classifier is None


def test_stages_that_are_modules_are_not_names():
    assert adapted(TimmConvNeXt()).body.stages == ()


def test_a_declared_width_says_that_the_output_is_the_features():
    module = TorchvisionResNet()
    module.dim = CLASSES
    assert adapted(module).body is module
    module.dim = 6  # the width of something inside
    assert adapted(module).classifier is not None


class Named(nn.Module):
    """Two linear layers; the names of both are given, and what is done to the output."""

    def __init__(self, first, last, after=None, classes=CLASSES):
        super().__init__()
        self.names, self.after = (first, last), after
        self.add_module(first, nn.Linear(64, 5))
        self.add_module(last, nn.Linear(5, classes))

    def before(self, x):
        return torch.relu(self.get_submodule(self.names[0])(x.flatten(1)))

    def forward(self, x):
        logits = self.get_submodule(self.names[1])(self.before(x))
        return logits if self.after is None else self.after(logits)


class Inside(nn.Module):
    """The classifier lies in a module of the user's own."""

    def __init__(self):
        super().__init__()
        self.head = Named("fc", "out")

    def before(self, x):
        return self.head.before(x)

    def forward(self, x):
        return self.head(x)


def sequence(*last):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), *last)


def test_the_last_layer_is_found_whatever_it_is_called():
    """`fc`, `head` and `classifier` were cut off and `out`, `l2` and the last of a sequence were not."""
    named = [Named("a", last) for last in ("fc", "classifier", "head", "out", "l2", "whatever")]
    swapped, flat = Named("fc", "out"), Named("a", "b", lambda logits: logits.view(len(logits), -1))
    sequences = [sequence(nn.Linear(5, CLASSES)), sequence(nn.Linear(5, CLASSES), nn.LogSoftmax(1))]
    for module in (*named, swapped, flat, Inside(), *sequences):
        last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
        found = adapted(module.eval())
        before = module.before(IMAGES) if hasattr(module, "before") else module[:3](IMAGES)
        assert torch.equal(found.body.eval()(IMAGES), before)
        assert torch.equal(found.classifier.weight, last.weight)
        assert len(list(found.body.parameters())) == 2
        assert "(5 → 7)" in found.cut
        assert "model.output=features" in found.hint
    rows = IMAGES.flatten(1)
    alone = as_backbone(nn.Linear(64, CLASSES), rows[:1], CLASSES)
    assert not list(alone.body.parameters())
    assert torch.equal(alone.body(rows), rows)


class SqueezeNetLike(nn.Module):
    """A classifier without a linear layer is not recognised."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 5, 3))
        self.classifier = nn.Sequential(nn.Conv2d(5, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x):
        return self.classifier(self.features(x))


def test_anything_else_is_used_as_it_is_and_said():
    """An activation behind the last linear layer, also one that works in place, makes the output features."""
    cases = [
        (Named("a", "fc", classes=4), "model.output=logits"),
        (sequence(nn.Linear(5, 9)), "model.output=logits"),
        (sequence(nn.Linear(5, CLASSES), nn.ReLU(inplace=True)), "method features(x)"),
        (Named("a", "fc", torch.relu_), "method features(x)"),
        (SqueezeNetLike(), "method features(x)"),
        (nn.Flatten(), ""),
        (Mlp((64,), (8,), CLASSES, "none"), ""),
    ]
    for module, hint in cases:
        found = adapted(module)
        assert found.body is module
        assert found.classifier is None
        assert hint in found.hint
        assert bool(hint) == bool(found.hint)
        assert "features" in found.found


def test_what_the_user_says_comes_first():
    module = Named("a", "out")
    as_it_is = adapted(module, output="features")
    assert as_it_is.body is module
    assert as_it_is.classifier is None
    wide = adapted(Named("a", "out", classes=9), output="logits")
    assert wide.classifier.out_features == 9
    assert wide.body(IMAGES).shape == (4, 5)
    for other, reason in ((SqueezeNetLike(), "nn.Linear"), (Named("a", "fc", torch.relu), "nn.Linear")):
        with pytest.raises(Misconfigured, match=reason):
            adapted(other, output="logits")
    with pytest.raises(Misconfigured, match="is a Backbone"):
        adapted(Mlp((64,), (8,), CLASSES, "none"), output="logits")


class TiedTwice(nn.Module):
    """The last layer is called twice, so it cannot be left out."""

    def __init__(self):
        super().__init__()
        self.same = nn.Linear(64, 64)

    def forward(self, x):
        return self.same(torch.relu(self.same(x.flatten(1))))


def tied():
    """The last layer has the weight of another one; a head cannot stay tied to it."""
    module = sequence(nn.Linear(5, 5), nn.Linear(5, 5))
    module[4].weight = module[3].weight
    return module


def test_a_layer_that_cannot_be_cut_off_is_an_error():
    """Log-probabilities would pass for features without a word."""
    with pytest.raises(Misconfigured, match=r"applies a softmax to the output of 'out'.*features\(x\)"):
        adapted(Named("a", "out", lambda logits: torch.log_softmax(logits, 1)))
    with pytest.raises(Misconfigured, match=r"uses the output of 'same' in another way"):
        adapted(TiedTwice(), 64)
    with pytest.raises(Misconfigured, match=r"'4' shares a parameter with '3'.*model.output=features"):
        adapted(tied(), 5)
    assert adapted(tied(), 5, output="features").classifier is None


def test_torchvisions_classifiers_are_known_whatever_their_width(monkeypatch):
    monkeypatch.setattr(TorchvisionResNet, "__module__", "torchvision.models.resnet")
    assert adapted(TorchvisionResNet(), 3).classifier.out_features == CLASSES


def test_halves_without_the_rest_of_timm_are_not_timm():
    module = TimmResNet()
    del module.num_features
    body = adapted(module).body
    assert torch.equal(body(IMAGES), module.before(IMAGES))
    assert isinstance(body.module.fc, nn.Identity)


def test_auxiliary_classifiers_are_refused():
    module = TorchvisionResNet()
    module.aux_logits = True
    with pytest.raises(Misconfigured, match=r"TorchvisionResNet has auxiliary classifiers.*aux_logits=False"):
        adapted(module)
    module.aux_logits = False
    assert adapted(module).body(IMAGES).shape == (4, 6)


@pytest.mark.parametrize("given", [3, TorchvisionResNet, None])
def test_what_is_no_module_is_refused(given):
    with pytest.raises(Misconfigured, match=r"expected a torch\.nn\.Module that returns features"):
        adapted(given)


def test_a_lazy_layer_is_told_to_be_run_first():
    module = nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.ReLU())
    with pytest.raises(
        Misconfigured, match=r"model Sequential .* without a shape, such as '1.weight'.* Run the module"
    ):
        fedblade.run(model=module)
    module(IMAGES)
    assert adapted(module).body is module


def test_a_run_with_a_torchvision_classifier(tmp_path):
    """Two linear layers stay in front of the classifier: taking off one more would change the width."""
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0)).numpy()
    labels = torch.arange(40).remainder(2).numpy()
    module = TorchvisionVgg().eval()
    settings = {
        "model.output": "logits",
        "num_clients": 2,
        "clients_per_round": 2,
        "rounds": 1,
        "method": "fedavg",
        "engine": "sequential",
    }
    fedblade.run(model=module, dataset=(images, labels, images, labels), out=tmp_path / "run", **settings)
    trained = fedblade.load(tmp_path / "run", model=module)
    assert trained.features(torch.from_numpy(images[:3])).shape == (3, 9)
