"""Recipes: which augmentation and which normalisation belong to a paper's name on a data set."""

import numpy as np
import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.data import RECIPE_NAMES, Dataset, Part, apply_recipe, to_samples
from fedblade.data._recipes import RECIPES

CPU = torch.device("cpu")
SIDES = {"tiny_imagenet": 64, "imagenet100": 256, "fed_isic2019": 224, "office_caltech10": 256, "domainnet": 256}
MARGINS = {"imagenet100": 16, "fed_isic2019": 12}


def dataset(name, channels=3, count=4, margin=None, side=None):
    side = side or SIDES.get(name, 32)
    x = np.random.default_rng(0).integers(0, 256, (count, channels, side, side), dtype=np.uint8)
    part = Part(x, np.arange(count) % 2)
    margin = MARGINS.get(name, 0) if margin is None else margin
    return Dataset(name, part, part, 2, unit=255.0, mean=(0.3,), std=(0.2,), margin=margin)


@pytest.mark.parametrize(("recipe", "name"), [(recipe, name) for recipe in RECIPES for name in RECIPES[recipe]])
def test_every_recipe_works_on_its_data_sets(recipe, name):
    given = dataset(name)
    made, augment = apply_recipe(given, recipe)
    train = to_samples(made, made.train, CPU, torch.float32, augment)
    test = to_samples(made, made.test, CPU, torch.float32, None)
    draws = torch.rand(4, train.num_draws, dtype=torch.float64) if augment else None
    batch, _ = train.batch(torch.arange(4), draws)
    expected = (3, 32, 32) if recipe == "fedblade_crop32" else made.input_shape
    assert batch.shape[1:] == expected
    assert test.batch(torch.arange(4))[0].shape[1:] == made.input_shape
    assert torch.isfinite(batch).all()
    assert given.mean == (0.3,)


TABLE = [
    ("fedblade", "cifar100", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ("fedblade", "tiny_imagenet", (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)),
    ("feddecorr", "cifar10", (125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    ("feddecorr", "cifar100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ("feddecorr", "tiny_imagenet32", (0.5,) * 3, (0.5,) * 3),
    ("feddecorr", "domainnet", (0.0,) * 3, (1.0,) * 3),
    ("fedgela", "cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615)),
    ("fedgela", "svhn", (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    ("fedgela", "fed_isic2019", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ("fedetf", "cifar10", (0.5,) * 3, (0.5,) * 3),
    ("fedetf", "tiny_imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ("feddr_plus", "cifar100", (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    ("feddr_plus", "cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    ("feddr_plus", "imagenet100", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


@pytest.mark.parametrize(("recipe", "name", "mean", "std"), TABLE)
def test_a_test_batch_is_normalised_as_the_table_says(recipe, name, mean, std):
    made, _ = apply_recipe(dataset(name), recipe)
    test = to_samples(made, made.test, CPU, torch.float64, None)
    margin = made.margin
    inside = made.test.inputs[:, :, margin : -margin or None, margin : -margin or None]
    expected = (inside / 255.0 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(test.batch(torch.arange(4))[0].numpy(), expected, atol=1e-12)


def test_none_and_crop_flip_keep_the_normalisation_of_the_data_set():
    given = dataset("anything", channels=1)
    assert apply_recipe(given, "none") == (given, None)
    made, augment = apply_recipe(given, "crop_flip")
    assert made is given
    assert augment.num_draws == 3


def test_crop_flip_uses_the_margin_instead_of_black():
    given = dataset("imagenet100", side=40, margin=4)
    _, augment = apply_recipe(given, "crop_flip")
    x = torch.from_numpy(given.train.inputs)
    corner = augment(x, torch.tensor([[0.0, 0.0, 0.9]] * 4, dtype=torch.float64))
    assert torch.equal(corner, x[:, :, :32, :32])
    middle = augment(x, torch.tensor([[0.5, 0.5, 0.9]] * 4, dtype=torch.float64))
    assert torch.equal(middle, x[:, :, 4:36, 4:36])


def test_without_augmentation_training_pictures_lose_their_margin():
    given = dataset("imagenet100", side=40, margin=4)
    train = to_samples(given, given.train, CPU, torch.float32, None)
    np.testing.assert_array_equal(train.inputs.numpy(), given.train.inputs[:, :, 4:36, 4:36])
    assert given.input_shape == (3, 32, 32)


def test_cutout_covers_with_the_mean():
    made, augment = apply_recipe(dataset("cifar10"), "feddr_plus_cutout")
    train = to_samples(made, made.train, CPU, torch.float64, augment)
    batch, _ = train.batch(torch.arange(4), torch.full((4, 5), 0.5, dtype=torch.float64))
    assert batch[:, :, 8:24, 8:24].abs().max() < 0.5 / 255 / 0.2
    assert batch[:, :, :8].abs().mean() > 0.5


def test_mistakes_are_explained():
    with pytest.raises(Misconfigured, match=r"unknown recipe dataset.augment = 'fedblad'. Did you mean 'fedblade'"):
        apply_recipe(dataset("cifar10"), "fedblad")
    with pytest.raises(
        Misconfigured, match=r"'fedblade' is not defined for dataset 'svhn', only for cifar10, cifar100"
    ):
        apply_recipe(dataset("svhn"), "fedblade")
    with pytest.raises(Misconfigured, match=r"'feddecorr' works on colour images.*\(1, 32, 32\)"):
        apply_recipe(dataset("cifar100", channels=1), "feddecorr")
    text = Part(np.zeros((2, 80), np.uint8), np.arange(2))
    with pytest.raises(Misconfigured, match=r"'crop_flip' works on images.*\(80,\)"):
        apply_recipe(Dataset("shakespeare", text, text, 2), "crop_flip")
    assert set(RECIPE_NAMES) == {"none", "crop_flip", *RECIPES}
