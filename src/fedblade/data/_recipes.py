"""Named recipes: for each data set the training augmentation and the normalisation of a paper.

The test transform of every recipe is the normalisation, after the margin of a data set was cut off.
The mean and deviation that FedBlade's paper gives for Tiny-ImageNet are those of CINIC-10. The recipes `fedblade` and
`fedblade_crop32` use them as the paper does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.samples import Augment
from fedblade.data._augment import Chain, CropFlip, Cutout, Flip, ResizedCrop
from fedblade.data._autoaugment import AutoAugment
from fedblade.data._dataset import Dataset
from fedblade.data._isic import LesionAugment
from fedblade.data._spec import IMAGENET
from fedblade.data._warp import Rotate

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Recipe:
    """A training augmentation (None: no augmentation) and the mean and deviation of each channel."""

    augment: Augment | None
    statistics: Statistics


_HALF: Statistics = ((0.5,), (0.5,))
_NOTHING: Statistics = ((0.0,), (1.0,))
_FEDBLADE_CIFAR: Statistics = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_FEDBLADE_TINY: Statistics = ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835))
_FEDDECORR_CIFAR10: Statistics = (
    (125.3 / 255, 123.0 / 255, 113.9 / 255),
    (63.0 / 255, 62.1 / 255, 66.7 / 255),
)
_FEDDECORR_CIFAR100: Statistics = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
_FEDGELA_CIFAR10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))
_FEDGELA_SVHN: Statistics = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
_FEDDR_CIFAR10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_FEDDR_CIFAR100: Statistics = ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
_DOMAINS = Recipe(Chain((Flip(), Rotate(30.0))), _NOTHING)


def _cutout(statistics: Statistics) -> Recipe:
    """Crop, flip and a square of 16 pixels filled with the mean."""
    fill = tuple(round(255 * mean) for mean in statistics[0])
    return Recipe(Chain((CropFlip(), Cutout(16, fill))), statistics)


def _for_both_sizes(recipe: Recipe) -> dict[str, Recipe]:
    return {"tiny_imagenet": recipe, "tiny_imagenet32": recipe}


RECIPES: Mapping[str, Mapping[str, Recipe]] = {
    "fedblade": {
        "cifar10": Recipe(CropFlip(), _FEDBLADE_CIFAR),
        "cifar100": Recipe(CropFlip(), _FEDBLADE_CIFAR),
        **_for_both_sizes(Recipe(CropFlip(), _FEDBLADE_TINY)),
    },
    # The paper's text read literally: training crops of 32 pixels, test pictures of 64.
    "fedblade_crop32": _for_both_sizes(Recipe(CropFlip(size=32), _FEDBLADE_TINY)),
    "feddecorr": {
        "cifar10": Recipe(CropFlip(), _FEDDECORR_CIFAR10),
        "cifar100": Recipe(Chain((CropFlip(), AutoAugment())), _FEDDECORR_CIFAR100),
        **_for_both_sizes(Recipe(AutoAugment(), _HALF)),
        "office_caltech10": _DOMAINS,
        "domainnet": _DOMAINS,
    },
    "fedgela": {
        "cifar10": Recipe(None, _FEDGELA_CIFAR10),
        "svhn": Recipe(None, _FEDGELA_SVHN),
        "cifar100": Recipe(Chain((CropFlip(), Rotate(15.0))), _FEDDECORR_CIFAR100),
        "fed_isic2019": Recipe(LesionAugment(), IMAGENET),
    },
    "fedetf": {
        "cifar10": Recipe(None, _HALF),
        "cifar100": Recipe(None, _HALF),
        **_for_both_sizes(Recipe(None, IMAGENET)),
    },
    "feddr_plus": {
        "cifar10": Recipe(ResizedCrop(32), _FEDDR_CIFAR10),
        "cifar100": Recipe(ResizedCrop(32), _FEDDR_CIFAR100),
        "imagenet100": Recipe(ResizedCrop(224), IMAGENET),
    },
    # For CIFAR, the code bases of FedDr+ crop and flip instead, without or with cutout.
    "feddr_plus_crop_flip": {
        "cifar10": Recipe(CropFlip(), _FEDDR_CIFAR10),
        "cifar100": Recipe(CropFlip(), _FEDDR_CIFAR100),
        "imagenet100": Recipe(ResizedCrop(224), IMAGENET),
    },
    # The first author's code takes ImageNet's mean and deviation for CIFAR-10.
    "feddr_plus_released": {
        "cifar10": Recipe(CropFlip(), IMAGENET),
        "cifar100": Recipe(CropFlip(), _FEDDR_CIFAR100),
        "imagenet100": Recipe(ResizedCrop(224), IMAGENET),
    },
    "feddr_plus_cutout": {"cifar10": _cutout(_FEDDR_CIFAR10), "cifar100": _cutout(_FEDDR_CIFAR100)},
}
RECIPE_NAMES = ("none", "crop_flip", *RECIPES)
"""The values of `dataset.augment`."""


def apply_recipe(dataset: Dataset, name: str) -> tuple[Dataset, Augment | None]:
    """The data set with the normalisation of recipe `name`, and the recipe's augmentation for training.

    `none` and `crop_flip` keep the normalisation of the data set. `none` works on any data set, `crop_flip` on images.
    """
    if name == "none":
        return dataset, None
    if name == "crop_flip":
        _check_images(dataset, name)
        inside = dataset.input_shape[-1]
        return dataset, CropFlip(0, inside) if dataset.margin else CropFlip()
    if name not in RECIPES:
        raise Misconfigured(f"unknown recipe dataset.augment = '{name}'.{nearest(name, RECIPE_NAMES)}")
    if dataset.name not in RECIPES[name]:
        raise Misconfigured(
            f"dataset.augment = '{name}' is not defined for dataset '{dataset.name}', only for "
            f"{', '.join(RECIPES[name])}. Use dataset.augment = 'crop_flip' or 'none'."
        )
    _check_images(dataset, name)
    recipe = RECIPES[name][dataset.name]
    mean, std = recipe.statistics
    return replace(dataset, mean=mean, std=std), recipe.augment


def _check_images(dataset: Dataset, name: str) -> None:
    shape = dataset.input_shape
    if len(shape) != 3 or (name in RECIPES and (shape[0] != 3 or dataset.train.inputs.dtype.name != "uint8")):
        kind = (
            "colour images of unsigned bytes (3, height, width)"
            if name in RECIPES
            else "images (channels, height, width)"
        )
        raise Misconfigured(
            f"dataset.augment = '{name}' works on {kind}; these inputs have shape {shape} and type "
            f"{dataset.train.inputs.dtype}. Use dataset.augment = 'none'."
        )
