"""AutoAugment with the policy found on CIFAR-10 (Cubuk et al., CVPR 2019, table 7 of the appendix)."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from fedblade.data import _tones as tones
from fedblade.data._warp import rotation, warp_nearest

# Operation, probability and strength (0 to 9) of the first and second step.
POLICY: tuple[tuple[tuple[str, float, int], tuple[str, float, int]], ...] = (
    (("invert", 0.1, 0), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 0), ("equalize", 0.9, 0)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("colour", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 0), ("equalize", 0.5, 0)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("colour", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 0), ("autocontrast", 0.4, 0)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("colour", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 0)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 0), ("equalize", 0.6, 0)),
    (("colour", 0.9, 9), ("equalize", 0.6, 0)),
    (("autocontrast", 0.8, 0), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("colour", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 0)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 0), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 0), ("invert", 0.1, 0)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 0)),
)
_KINDS = ("none", *sorted({name for steps in POLICY for name, _, _ in steps}))
_STRONGEST = 9


def _is(kinds: Tensor, name: str) -> Tensor:
    """Which images [batch] get the named operation."""
    return kinds == _KINDS.index(name)


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Kind, probability and strength of every step, each [25, 2]."""
    kinds = [[_KINDS.index(name) for name, _, _ in steps] for steps in POLICY]
    chances = [[chance for _, chance, _ in steps] for steps in POLICY]
    strengths = [[strength for _, _, strength in steps] for steps in POLICY]
    return (
        torch.tensor(kinds, device=device),
        torch.tensor(chances, dtype=torch.float64, device=device),
        torch.tensor(strengths, dtype=torch.float64, device=device),
    )


@dataclass(frozen=True)
class AutoAugment:
    """One of 25 pairs of operations per image, with a probability and a random sign for each operation.

    Strength m of 9 means: shear 0.3·m/9, shift by 150/331·m/9 of the side in whole pixels, rotation by 30°·m/9, all
    with nearest pixels and grey (128) outside; contrast, colour, brightness and sharpness 1 ± 0.9·m/9; posterise to
    8 − round(4·m/9) bits; solarise from 255·(1 − m/9). Every image goes through every family of operations once, with
    neutral settings for operations that it does not get, so that no shape depends on the draws.
    Draws per image: pair, then application and sign of each step.
    """

    fill: int = 128
    num_draws: ClassVar[int] = 5

    def __call__(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Change colour images [batch, 3, height, width] of unsigned bytes."""
        kinds, chances, strengths = _tables(inputs.device)
        pairs = (draws[:, 0] * len(POLICY)).long()
        for step in range(2):
            applied = draws[:, 1 + 2 * step] < chances[pairs, step]
            kind = torch.where(applied, kinds[pairs, step], 0)
            sign = torch.where(draws[:, 2 + 2 * step] < 0.5, -1.0, 1.0).double()
            inputs = self._step(inputs, kind, strengths[pairs, step] / _STRONGEST, sign)
        return inputs

    def _step(self, images: Tensor, kind: Tensor, strength: Tensor, sign: Tensor) -> Tensor:
        """Apply one operation per image; `strength` is in [0, 1]."""
        height, width = images.shape[-2:]
        images = warp_nearest(images, _matrices(kind, strength, sign, height, width), self.fill)
        images = tones.look_up(images, _lookup_tables(images, kind, strength))
        factor = 1.0 + 0.9 * strength * sign
        for name, base in (
            ("brightness", torch.zeros_like(images)),
            ("contrast", tones.mean_grey(images)),
            ("colour", tones.grey(images)),
            ("sharpness", tones.smooth(images)),
        ):
            chosen = _is(kind, name)[:, None, None, None]
            images = torch.where(chosen, tones.blend(base, images, factor), images)
        return images


def _matrices(kind: Tensor, strength: Tensor, sign: Tensor, height: int, width: int) -> Tensor:
    """Affine matrices of shears, shifts and rotations; the identity for other operations."""
    zero, signed = torch.zeros_like(strength), strength * sign
    matrices = rotation(torch.where(_is(kind, "rotate"), 30.0 * signed, zero), width / 2, height / 2)
    matrices[:, 1, 0] += torch.where(_is(kind, "shear_y"), 0.3 * signed, zero)
    for name, axis, side in (("translate_x", 0, width), ("translate_y", 1, height)):
        pixels = (150.0 / 331.0 * side * strength).floor() * sign
        matrices[:, axis, 2] += torch.where(_is(kind, name), pixels, zero)
    return matrices


def _lookup_tables(images: Tensor, kind: Tensor, strength: Tensor) -> Tensor:
    """Tables [batch, channels, 256] of the operations that replace values; other operations keep the values."""
    values = torch.arange(256, device=images.device)
    counts = tones.histograms(images)
    bits = 8 - (strength * _STRONGEST / (_STRONGEST / 4)).round().long()[:, None, None]
    threshold = 255.0 - 255.0 * strength[:, None, None]
    tables = values.to(torch.uint8).expand(len(images), images.shape[1], 256)
    for name, changed in (
        ("invert", 255 - values),
        ("solarize", torch.where(values < threshold, values, 255 - values)),
        ("posterize", values - values % (2 ** (8 - bits))),
        ("autocontrast", tones.autocontrast_tables(counts)),
        ("equalize", tones.equalize_tables(counts)),
    ):
        tables = torch.where(_is(kind, name)[:, None, None], changed.to(torch.uint8), tables)
    return tables
