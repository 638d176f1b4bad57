"""AutoAugment's operations and policy against Pillow, one image at a time."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from fedblade.data._autoaugment import POLICY, AutoAugment

SIDE = 32
GREY = (128, 128, 128)


def pillow(image, name, strength, sign):
    """The operation as Pillow does it, with the strengths of the docstring."""
    m = strength / 9
    factor = 1 + sign * 0.9 * m
    shift = sign * int(150 / 331 * SIDE * m)

    def affine(*matrix):
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST, fillcolor=GREY)

    operations = {
        "shear_y": lambda: affine(1, 0, 0, sign * 0.3 * m, 1, 0),
        "translate_x": lambda: affine(1, 0, shift, 0, 1, 0),
        "translate_y": lambda: affine(1, 0, 0, 0, 1, shift),
        "rotate": lambda: image.rotate(sign * 30 * m, Image.Resampling.NEAREST, fillcolor=GREY),
        "invert": lambda: ImageOps.invert(image),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "posterize": lambda: ImageOps.posterize(image, 8 - round(4 * m)),
        "solarize": lambda: ImageOps.solarize(image, 255 - 255 * m),
        "contrast": lambda: ImageEnhance.Contrast(image).enhance(factor),
        "colour": lambda: ImageEnhance.Color(image).enhance(factor),
        "brightness": lambda: ImageEnhance.Brightness(image).enhance(factor),
        "sharpness": lambda: ImageEnhance.Sharpness(image).enhance(factor),
    }
    return operations[name]()


def reference(image, u):
    """The policy on one image [3, 32, 32]."""
    made = Image.fromarray(image.permute(1, 2, 0).numpy())
    for step, (name, chance, strength) in enumerate(POLICY[math.floor(25 * u[0])]):
        if u[1 + 2 * step] < chance:
            made = pillow(made, name, strength, -1 if u[2 + 2 * step] < 0.5 else 1)
    return torch.from_numpy(np.array(made)).permute(2, 0, 1)


def pictures(count, seed=0):
    """Half noise, half dim and smooth pictures, on which contrast and histograms have something to do."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    coarse = torch.rand(count, 3, 4, 4, generator=generator) * 120 + 30
    dim = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear").to(torch.uint8)
    return torch.where(torch.arange(count)[:, None, None, None] % 2 == 0, noise, dim)


GEOMETRIC = {"shear_y", "rotate"}
STEPS = sorted({(name, strength) for pair in POLICY for name, _, strength in pair})


@pytest.mark.parametrize(("name", "strength"), STEPS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_each_operation_is_pillows(name, strength, sign):
    """Equal to the last bit; shears and rotations up to 0.5 % of pixels on edges (Pillow's fixed-point coordinates)."""
    from fedblade.data import _autoaugment as module

    x = pictures(8)
    kind = torch.full((8,), module._KINDS.index(name))
    strengths = torch.full((8,), strength / 9, dtype=torch.float64)
    made = AutoAugment()._step(x, kind, strengths, torch.full((8,), float(sign), dtype=torch.float64))
    expected = torch.stack(
        [
            torch.from_numpy(np.array(pillow(Image.fromarray(each.permute(1, 2, 0).numpy()), name, strength, sign)))
            for each in x
        ]
    ).permute(0, 3, 1, 2)
    wrong = (made != expected).float().mean().item()
    assert wrong <= (0.005 if name in GEOMETRIC else 0.0)


def test_the_whole_policy_is_pillows():
    x = pictures(500, seed=3)
    u = torch.rand(500, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    made = AutoAugment()(x, u)
    expected = torch.stack([reference(image, numbers) for image, numbers in zip(x, u.tolist(), strict=True)])
    equal = (made == expected).flatten(1).all(1)
    moved = torch.tensor([any(name in GEOMETRIC for name, _, _ in POLICY[int(25 * a)]) for a in u[:, 0]])
    assert equal[~moved].all()
    assert (made != expected).float().mean() < 0.005
    assert (made != x).flatten(1).any(1).float().mean() > 0.6


def test_a_flat_picture_survives():
    x = torch.full((25, 3, SIDE, SIDE), 90, dtype=torch.uint8)
    u = torch.stack([(torch.arange(25) + 0.5) / 25, *[torch.zeros(25)] * 4], 1).double()
    expected = torch.stack([reference(image, numbers) for image, numbers in zip(x, u.tolist(), strict=True)])
    assert torch.equal(AutoAugment()(x, u), expected)


# The published table again, sorted by operation: chance in tenths and strength of each use.
BY_OPERATION = {
    "autocontrast": [(4, 0), (5, 0), (6, 0), (8, 0), (9, 0), (9, 0), (9, 0)],
    "brightness": [(1, 3), (6, 7), (7, 9), (9, 6)],
    "colour": [(2, 8), (4, 3), (7, 0), (7, 7), (9, 9)],
    "contrast": [(2, 6), (6, 7)],
    "equalize": [(2, 0), (2, 0), (3, 0), (5, 0), (6, 0), (6, 0), (6, 0), (8, 0), (9, 0)],
    "invert": [(0, 0), (1, 0), (1, 0)],
    "posterize": [(3, 7)],
    "rotate": [(7, 2)],
    "sharpness": [(2, 6), (3, 9), (6, 5), (8, 1), (9, 3)],
    "shear_y": [(2, 7), (5, 8)],
    "solarize": [(2, 8), (4, 5), (5, 2), (8, 3)],
    "translate_x": [(3, 9), (5, 8)],
    "translate_y": [(4, 3), (7, 9), (7, 9), (7, 9), (9, 9)],
}


def test_the_policy_is_the_published_one():
    assert len(POLICY) == 25
    uses = [(name, round(10 * chance), strength) for pair in POLICY for name, chance, strength in pair]
    assert sorted(uses) == [(name, *use) for name, listed in BY_OPERATION.items() for use in listed]


def test_shifts_grow_with_the_picture():
    """150 of 331 pixels at full strength, in whole pixels: 99.7 of 220 make 99."""
    from fedblade.data import _autoaugment as module

    x = torch.arange(220, dtype=torch.uint8).expand(1, 3, 220, 220)
    kind = torch.tensor([module._KINDS.index("translate_x")])
    made = AutoAugment()._step(x, kind, torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert made[0, 0, 0, :121].tolist() == list(range(99, 220))
    assert made[0, 0, 0, 121:].tolist() == [128] * 99


def test_an_image_does_not_depend_on_its_neighbours():
    x = pictures(12)
    u = torch.rand(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = AutoAugment()(x, u)
    for i in range(12):
        assert torch.equal(AutoAugment()(x[i : i + 1], u[i : i + 1])[0], whole[i])
