"""Picture files to arrays of one shape. A picture that cannot be read is an error that names it; none is skipped."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.data._source import Array, Block, Task

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"})
_PER_TASK = 64
_LOOKED_AT = 500
_SHOWN = 4


@dataclass(frozen=True)
class Fit:
    """How pictures become `size` × `size` pixels.

    `exact` refuses other sizes. `halve` also takes pictures of twice the size and averages 2×2 pixels. `squash` resizes
    both sides. `cover` resizes the shorter side and crops the centre. Resizing uses Pillow's bilinear filter. `as_is`
    takes any size.
    """

    size: int
    how: Literal["exact", "halve", "squash", "cover", "as_is"] = "exact"
    channels: int = 3

    def __str__(self) -> str:
        return f"{self.how} {self.size}x{self.size}x{self.channels}"


@dataclass(frozen=True)
class Picture:
    """An encoded picture: a path or bytes, its label and group, and its name in error messages."""

    data: Path | bytes
    label: int
    group: str | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """Where the picture comes from, for error messages."""
        return self.where or str(self.data)


def common_size(pictures: Sequence[Picture]) -> int:
    """The side of square pictures of one size. Of many pictures some are looked at, from the first to the last."""
    seen = pictures[:: -(-len(pictures) // _LOOKED_AT)]
    sizes = Counter("{}×{}".format(*_size(picture)) for picture in seen)
    width, height = _size(pictures[0])
    if len(sizes) == 1 and width == height:
        return width
    shown = ", ".join(f"{size} ({count:,})" for size, count in sizes.most_common(_SHOWN))
    more = f" and {len(sizes) - _SHOWN} more" if len(sizes) > _SHOWN else ""
    raise Misconfigured(
        f"the pictures have {shown}{more} pixels, by {len(seen):,} of {len(pictures):,} pictures; expected squares of "
        f"one size, as no size was set. Set dataset.size, such as dataset.size=32: the shorter side is resized to it, "
        f"and the middle is cut out."
    )


def _size(picture: Picture) -> tuple[int, int]:
    with _open(picture) as image:
        width, height = image.size
    return int(width), int(height)


def picture_shape(picture: Picture) -> tuple[tuple[int, int], str]:
    """Height and width of a picture, and Pillow's name of its mode, such as `RGB` or `L`."""
    with _open(picture) as image:
        width, height = image.size
        return (int(height), int(width)), str(image.mode)


def formats_of(pictures: Iterable[Picture]) -> str:
    """The formats in which pictures are encoded, read from their bytes; JPEG is marked as lossy."""
    formats = set()
    for picture in pictures:
        with _open(picture) as image:
            formats.add("JPEG (lossy)" if image.format == "JPEG" else str(image.format))
    return " and ".join(sorted(formats))


def _open(picture: Picture) -> Any:
    pillow = need("PIL.Image", "data", "pillow", "reading pictures")
    try:
        return pillow.open(picture.data if isinstance(picture.data, Path) else io.BytesIO(picture.data))
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise _unreadable(picture, error) from error


def _unreadable(picture: Picture, error: Exception) -> Misconfigured:
    reason = "not a picture" if type(error).__name__ == "UnidentifiedImageError" else str(error).partition("\n")[0]
    return Misconfigured(
        f"'{picture.name}' cannot be decoded ({reason}); expected a whole JPEG, PNG or similar. Restore or remove it."
    )


def decode(picture: Picture, fit: Fit) -> Array:
    """Pixels [channels, size, size] as unsigned bytes."""
    with _open(picture) as image:
        try:
            plain = image.convert("RGB" if fit.channels == 3 else "L")
        except (OSError, SyntaxError, ValueError) as error:
            raise _unreadable(picture, error) from error
    pixels = np.asarray(plain if plain.size == (fit.size, fit.size) else _resize(plain, picture, fit))
    return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None]


def _resize(image: Any, picture: Picture, fit: Fit) -> Any:
    pillow = need("PIL.Image", "data", "pillow", "reading pictures")
    size, (width, height) = fit.size, image.size
    if fit.how == "as_is":
        return image
    if fit.how == "halve" and (width, height) == (2 * size, 2 * size):
        return image.reduce(2)
    if fit.how == "squash":
        return image.resize((size, size), pillow.Resampling.BILINEAR)
    if fit.how == "cover":
        ratio = size / min(width, height)
        scaled = (max(size, int(width * ratio)), max(size, int(height * ratio)))
        left, top = round((scaled[0] - size) / 2), round((scaled[1] - size) / 2)
        return image.resize(scaled, pillow.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    raise Misconfigured(
        f"'{picture.name}' has {width}×{height} pixels; expected {size}×{size}. Check that this is the "
        f"right data set; pictures of your own are resized with dataset.size."
    )


def decode_all(pictures: Sequence[Picture], fit: Fit) -> Block:
    """Decode pictures into one block."""
    inputs = np.empty((len(pictures), fit.channels, fit.size, fit.size), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        inputs[i] = decode(picture, fit)
    labels = np.asarray([picture.label for picture in pictures], dtype=np.int64)
    groups = tuple(str(picture.group) for picture in pictures)
    return Block(inputs, labels, groups if pictures[0].group is not None else None)


def picture_tasks(pictures: Sequence[Picture], fit: Fit) -> Iterator[Task]:
    """Tasks that decode blocks of pictures, in order."""
    for start in range(0, len(pictures), _PER_TASK):
        yield partial(decode_all, pictures[start : start + _PER_TASK], fit)
