"""What the inputs of a user's own data are: pictures, with their channels first or last, or tables."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Array

_CHANNELS = (1, 3, 4)
_PIXEL = 255.0


@dataclass(frozen=True)
class Look:
    """The shape of one input as it was given and as it is stored, by what values are divided, and what to tell."""

    given: tuple[int, ...]
    stored: tuple[int, ...]
    unit: float = 1.0
    notes: tuple[str, ...] = ()

    def store(self, inputs: Array) -> Array:
        """Inputs [n, …] of the given shape in the stored one; others stay as they are."""
        if self.given == self.stored or inputs.shape[1:] != self.given:
            return inputs
        return inputs[:, None] if len(self.given) < len(self.stored) else np.moveaxis(inputs, -1, 1)


def look_at(inputs: Array) -> Look:
    """What inputs [n, …] are, by type and shape; a shape that may be read in two ways is refused.

    Bytes of shape [n, height, width] or with three axes after the first are pixels, to be divided by 255. Three axes
    of which the last alone can be channels are pictures with channels last. All else is used as it is.
    """
    given = tuple(int(size) for size in inputs.shape[1:])
    pixels = inputs.dtype == np.uint8 and len(given) in (2, 3)
    stored = (1, *given) if pixels and len(given) == 2 else _channels_first(given)
    said = []
    if stored != given:
        missing = len(stored) > len(given)
        why = "has no axis of channels" if missing else "has its channels last"
        said.append(f"{_shown(given)} {why} and is read as {_shown(stored)}")
    if pixels:
        said.append("bytes are pixels and are divided by 255")
    elif inputs.dtype == np.uint8:
        said.append(
            f"bytes of shape {_shown(given)} are a table and are used as they are; give pixels as "
            f"[n, height, width] or divide them"
        )
    return Look(given, stored, _PIXEL if pixels else 1.0, (f"inputs: {'; '.join(said)}",) if said else ())


def _channels_first(given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a picture with its channels in front."""
    if len(given) != 3:
        return given
    first, middle, last = given
    if first in _CHANNELS and last in _CHANNELS:
        # A square picture is by far the more likely one.
        squares = (middle == last, first == middle)
        if squares not in ((True, False), (False, True)):
            raise Misconfigured(
                f"inputs of shape {_shown(given)} may have their channels first or last; expected "
                f"[n, channels, height, width]. Give a fedblade.data.Dataset, whose inputs are read in that order."
            )
        return given if squares[0] else (last, first, middle)
    return (last, first, middle) if last in _CHANNELS else given


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(('n', *map(str, shape)))}]"
