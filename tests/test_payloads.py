import pytest
import torch

from fedblade.core.streams import Streams
from fedblade.core.views import StepView
from fedblade.heads import LinearHead
from fedblade.payloads import class_features

CLASSES, DIM = 3, 4
HEAD = LinearHead()
TENSORS = HEAD.init(DIM, CLASSES, Streams(0))


def view(features, labels, mask=None):
    return StepView(
        params=TENSORS.params,
        anchor={},
        fixed=TENSORS.fixed,
        head=HEAD,
        features=features,
        output=HEAD(TENSORS.params, TENSORS.fixed, features),
        labels=labels,
        counts=torch.ones(CLASSES),
        server={},
        client={},
        round=0,
        mask=mask,
    )


def batch(samples=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, DIM, generator=generator), torch.arange(samples) % CLASSES


def test_sums_and_counts_by_class():
    z, labels = batch()
    found = class_features(view(z, labels))
    for c in range(CLASSES):
        torch.testing.assert_close(found["sum"][c], z[labels == c].double().sum(0))
    assert found["count"].tolist() == [2, 2, 2]
    assert found["sum"].dtype == found["count"].dtype == torch.float64


@pytest.mark.parametrize("junk", [1.0, torch.inf, torch.nan])
@pytest.mark.parametrize("label", [0, -1, 999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_padding_may_hold_anything(junk, label, dtype):
    z, labels = batch()
    exact = class_features(view(z, labels))
    padded = torch.cat((z, torch.full((2, DIM), junk))), torch.cat((labels, torch.full((2,), label)))
    found = class_features(view(*padded, torch.tensor([1, 1, 1, 1, 1, 1, 0, 0], dtype=dtype)))
    assert all(torch.equal(found[name], leaf) for name, leaf in exact.items())


def test_vmap_over_clients_is_a_loop():
    z, labels = batch()
    masks = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0.0]])
    spoilt = torch.where(masks[..., None] != 0, z, torch.nan)
    stacked = torch.func.vmap(lambda x, mask: class_features(view(x, labels, mask)))(spoilt, masks)
    for k, mask in enumerate(masks):
        keep = mask != 0
        for name, leaf in class_features(view(z[keep], labels[keep])).items():
            torch.testing.assert_close(stacked[name][k], leaf)
