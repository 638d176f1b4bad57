"""Each augmentation against a slow version that treats one image at a time."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from fedblade.data._augment import Chain, CropFlip, Cutout, Flip, ResizedCrop
from fedblade.data._isic import LesionAugment
from fedblade.data._warp import Rotate


def images(count, height, width=None, channels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width or height), dtype=torch.uint8, generator=generator)


def smooth_images(count, side, seed=0):
    """Pictures with little detail, so that a small error of a coordinate is a small error of a value."""
    coarse = images(count, 4, seed=seed).float()
    grown = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=False)
    return grown.clamp(0, 255).to(torch.uint8)


def draws(count, number, seed=1):
    return torch.rand(count, number, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def as_pil(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("padding", "size"), [(4, None), (2, 5), (0, 6), (4, 13)])
def test_crop_and_flip(padding, size):
    x, u = images(40, 9, 11), draws(40, 3)
    made = CropFlip(padding, size)(x, u).numpy()
    for image, (a, b, c), result in zip(x.numpy(), u.tolist(), made, strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        height, width = (size, size) if size else image.shape[1:]
        top = math.floor(a * (padded.shape[1] - height + 1))
        left = math.floor(b * (padded.shape[2] - width + 1))
        expected = padded[:, top : top + height, left : left + width]
        np.testing.assert_array_equal(result, expected[:, :, ::-1] if c < 0.5 else expected)


def test_every_offset_of_a_crop_is_equally_likely():
    x = torch.arange(81, dtype=torch.uint8).reshape(1, 1, 9, 9).expand(9, -1, -1, -1)
    u = torch.stack([(torch.arange(9) + 0.5) / 9, torch.full((9,), 0.5), torch.ones(9)], 1).double()
    rows = CropFlip()(x, u)[:, 0, :, 4]
    assert rows.tolist() == [[9 * (top + i) + 4 if 0 <= top + i < 9 else 0 for i in range(9)] for top in range(-4, 5)]


def test_flip():
    x, u = images(20, 5, 7), draws(20, 1)
    made = Flip()(x, u)
    for image, (a,), result in zip(x, u.tolist(), made, strict=True):
        assert torch.equal(result, image.flip(2) if a < 0.5 else image)
    assert 0 < (u < 0.5).sum() < 20


def test_cutout():
    x, u = images(30, 12, 10), draws(30, 2)
    made = Cutout(6, (1, 2, 3))(x, u).numpy()
    covered = 0
    for image, (a, b), result in zip(x.numpy(), u.tolist(), made, strict=True):
        row, column = math.floor(a * 12), math.floor(b * 10)
        expected = image.copy()
        for i in range(max(0, row - 3), min(12, row + 3)):
            for j in range(max(0, column - 3), min(10, column + 3)):
                expected[:, i, j] = (1, 2, 3)
                covered += 1
        np.testing.assert_array_equal(result, expected)
    assert covered < 30 * 36


def test_rotation_is_pillows():
    """Nearest pixel, black outside. Pillow counts in 1/65536 pixel, so pixels on an edge may differ: under 0.5 %."""
    x, u = images(24, 32), draws(24, 1)
    made = Rotate(30.0)(x, u)
    expected = [
        as_pil(image).rotate(60.0 * a - 30.0, Image.Resampling.NEAREST)
        for image, (a,) in zip(x, u.tolist(), strict=True)
    ]
    wrong = (made.permute(0, 2, 3, 1).numpy() != np.stack([np.asarray(each) for each in expected])).mean()
    assert wrong < 0.005
    assert torch.equal(Rotate(30.0)(x, torch.full((24, 1), 0.5)), x)


def reference_box(u, height, width):
    """The box of one image, try after try."""
    for attempt in range(10):
        area = height * width * (0.08 + 0.92 * u[attempt])
        ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * u[10 + attempt])
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return math.floor(u[20] * (height - h + 1)), math.floor(u[21] * (width - w + 1)), h, w
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width / (3 / 4)))
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 36, 28), (24, 24, 32), (16, 60, 16)])
def test_resized_crop_is_pillows(height, width, size):
    """Pillow's bilinear filter on the same box, width first (newer releases start with either axis).

    Where a value is an exact half, Pillow's weights in steps of 1/2²² decide by chance: such values may differ by one
    level, at most 5 % of them for these ratios of sides.
    """
    x, u = images(30, height, width), draws(30, 23)
    u[::3, :10] = 0.999
    augment = ResizedCrop(size)
    boxes = torch.stack(augment.boxes(u, height, width), 1).tolist()
    made = augment(x, u)
    for image, numbers, box, result in zip(x, u.tolist(), boxes, made, strict=True):
        top, left, h, w = reference_box(numbers, height, width)
        assert box == [top, left, h, w]
        cut = as_pil(image).crop((left, top, left + w, top + h))
        narrowed = cut.resize((size, h), Image.Resampling.BILINEAR)
        expected = np.asarray(narrowed.resize((size, size), Image.Resampling.BILINEAR)).astype(int)
        expected = expected[:, ::-1] if numbers[22] < 0.5 else expected
        difference = np.abs(result.permute(1, 2, 0).numpy().astype(int) - expected)
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.05


def test_a_resized_crop_that_never_fits_is_central():
    u = torch.full((1, 23), 0.999, dtype=torch.float64)
    assert [int(each) for each in ResizedCrop(8).boxes(u, 9, 30)] == [0, 9, 9, 12]
    assert [int(each) for each in ResizedCrop(8).boxes(u, 30, 9)] == [9, 0, 12, 9]


def reference_lesion(image, u, size, hole):
    """One image, one pixel at a time: where each output pixel comes from, step by step backwards."""
    side = image.shape[1]
    scale = 1 + 0.07 * (2 * u[1] - 1) if u[0] < 0.5 else 1.0
    angle = math.radians(50 * (2 * u[3] - 1)) if u[2] < 0.5 else 0.0
    brightness, contrast = (0.15 * 255 * (2 * u[5] - 1), 1 + 0.1 * (2 * u[6] - 1)) if u[4] < 0.5 else (0.0, 1.0)
    kind = ("horizontal", "vertical", "both")[math.floor(3 * u[8])] if u[7] < 0.5 else "none"
    shears = [math.tan(math.radians(0.1 * (2 * v - 1))) if u[9] < 0.5 else 0.0 for v in u[10:12]]
    scaled = math.floor(side * scale)
    top, left = math.floor(u[12] * (scaled - size + 1)), math.floor(u[13] * (scaled - size + 1))
    result = np.zeros((3, size, size))

    def pixel(row, column):
        while not (0 <= row < side and 0 <= column < side):
            row = -row if row < 0 else 2 * (side - 1) - row if row >= side else row
            column = -column if column < 0 else 2 * (side - 1) - column if column >= side else column
        return image[:, row, column].astype(float)

    for i in range(size):
        for j in range(size):
            x, y = left + j + 0.5 - scaled / 2, top + i + 0.5 - scaled / 2
            x, y = x + shears[0] * y, y + shears[1] * x
            x = -x if kind in ("horizontal", "both") else x
            y = -y if kind in ("vertical", "both") else y
            x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
            x, y = x / scale + side / 2 - 0.5, y / scale + side / 2 - 0.5
            r, c = math.floor(y), math.floor(x)
            fy, fx = y - r, x - c
            upper = (1 - fx) * pixel(r, c) + fx * pixel(r, c + 1)
            lower = (1 - fx) * pixel(r + 1, c) + fx * pixel(r + 1, c + 1)
            result[:, i, j] = (1 - fy) * upper + fy * lower
    result = np.clip(np.floor(result * contrast + brightness + 0.5), 0, 255)
    for k in range(math.floor(8 * u[15]) + 1 if u[14] < 0.5 else 0):
        row, column = math.floor(u[16 + k] * (size - hole)), math.floor(u[24 + k] * (size - hole))
        result[:, row : row + hole, column : column + hole] = 0
    return result


def test_lesion_augmentation():
    """Bilinear, reflected at the border; float32 against float64, so values may differ by one level."""
    x, u = smooth_images(24, 28), draws(24, 32)
    made = LesionAugment(size=20, hole=4)(x, u).numpy()
    assert made.shape == (24, 3, 20, 20)
    for image, numbers, result in zip(x.numpy(), u.tolist(), made, strict=True):
        difference = np.abs(result - reference_lesion(image, numbers, 20, 4))
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.01


def test_lesion_augmentation_at_rest_is_a_crop():
    x = images(3, 28)
    u = torch.full((3, 32), 0.9, dtype=torch.float64)
    u[:, 12:14] = 0.5
    assert torch.equal(LesionAugment(size=20, hole=4)(x, u), x[:, :, 4:24, 4:24])


def test_a_chain_gives_each_step_its_own_draws():
    x, u = images(10, 16), draws(10, 6)
    chain = Chain((CropFlip(), Cutout(4), Rotate(15.0)))
    assert chain.num_draws == 6
    expected = Rotate(15.0)(Cutout(4)(CropFlip()(x, u[:, :3]), u[:, 3:5]), u[:, 5:])
    assert torch.equal(chain(x, u), expected)


@pytest.mark.parametrize(
    "augment", [CropFlip(), Flip(), Cutout(4), Rotate(20.0), ResizedCrop(16), LesionAugment(12, 3)]
)
def test_an_image_does_not_depend_on_its_neighbours(augment):
    x, u = images(6, 16), draws(6, augment.num_draws)
    whole = augment(x, u)
    assert whole.dtype == torch.uint8
    for i in range(6):
        assert torch.equal(augment(x[i : i + 1], u[i : i + 1])[0], whole[i])
