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
    of which the last alone can be channels are pictures with channels last. All else is used as it is. The notes say
    how many channels were read where it is not 1, 3 or 4, and that integers other than bytes are not divided.
    """
    given = tuple(int(size) for size in inputs.shape[1:])
    pixels = inputs.dtype == np.uint8 and len(given) in (2, 3)
    stored = (1, *given) if pixels and len(given) == 2 else _channels_first(given)
    said = []
    if stored != given:
        missing = len(stored) > len(given)
        why = "has no axis of channels" if missing else "has its channels last"
        said.append(f"{_shown(given)} {why} and is read as {_shown(stored)}")
    elif len(given) == 3 and given[0] not in _CHANNELS:
        said.append(f"{_shown(given)} is read as {_in_words(*given)}")
    if pixels:
        said.append("bytes are pixels and are divided by 255")
    elif inputs.dtype == np.uint8:
        said.append(
            f"bytes of shape {_shown(given)} are a table and are used as they are; give pixels as "
            f"[n, height, width] or divide them"
        )
    elif inputs.dtype.kind in "iu" and len(given) in (2, 3):
        fits = inputs.size == 0 or (inputs.min() >= 0 and inputs.max() <= _PIXEL)
        advice = "; give bytes (uint8) to have them divided by 255" if fits else f", up to {inputs.max()}"
        said.append(f"integers are used as they are{advice}")
    return Look(given, stored, _PIXEL if pixels else 1.0, (f"inputs: {'; '.join(said)}",) if said else ())


def _channels_first(given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a picture with its channels in front."""
    if len(given) != 3:
        return given
    first, middle, last = given
    if first in _CHANNELS and last in _CHANNELS:
        # A square picture is by far the more likely one.
        if (middle == last) == (first == middle):
            raise _two_readings(*given)
        return given if middle == last else (last, first, middle)
    if last in _CHANNELS:
        return last, first, middle
    # A square in front is a picture with channels last, as satellites and microscopes give them, or a wide one.
    if first == middle != last and first > 1:
        raise _two_readings(*given)
    return given


def _two_readings(first: int, middle: int, last: int) -> Misconfigured:
    return Misconfigured(
        f"inputs of shape {_shown((first, middle, last))} may have their channels first or last: "
        f"{_in_words(first, middle, last)}, or {_in_words(last, first, middle)}; expected [n, channels, height, width]."
        f" Transpose channels that are last to the front. Give a fedblade.data.Dataset if they are in front: its "
        f"inputs are read in that order."
    )


def _in_words(channels: int, height: int, width: int) -> str:
    return f"{channels} {'channel' if channels == 1 else 'channels'} of {height}×{width}"


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(('n', *map(str, shape)))}]"
