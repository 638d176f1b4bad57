"""Whether the inputs of a user's data are pictures with channels first, pictures with channels last, or tables."""

from dataclasses import dataclass

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Array

_CHANNELS = (1, 3, 4)
_PIXEL = 255.0


@dataclass(frozen=True)
class InputLayout:
    """The shape of one input as given and as stored, the number that values are divided by, and notes for the user."""

    given: tuple[int, ...]
    stored: tuple[int, ...]
    unit: float = 1.0
    notes: tuple[str, ...] = ()

    def store(self, inputs: Array) -> Array:
        """Turn inputs [n, …] of the given shape into the stored shape; inputs of other shapes do not change."""
        if self.given == self.stored or inputs.shape[1:] != self.given:
            return inputs
        return inputs[:, None] if len(self.given) < len(self.stored) else np.moveaxis(inputs, -1, 1)


def input_layout(inputs: Array) -> InputLayout:
    """The layout of inputs [n, …] by their type and shape; an ambiguous shape is refused.

    Bytes of shape [n, height, width], or with three axes after the first, are pixels and are divided by 255. Inputs
    with three axes, of which only the last can be channels, are pictures with channels last. All other inputs are used
    as they are. The notes name a number of channels other than 1, 3 and 4, and say that integers which are not bytes
    are used as they are.
    """
    given = tuple(int(size) for size in inputs.shape[1:])
    pixels = inputs.dtype == np.uint8 and len(given) in (2, 3)
    stored = (1, *given) if pixels and len(given) == 2 else _channels_first(given)
    statements = []
    if stored != given:
        reason = "has no axis of channels" if len(stored) > len(given) else "has its channels last"
        statements.append(f"{_shape_text(given)} {reason} and is read as {_shape_text(stored)}")
    elif len(given) == 3 and given[0] not in _CHANNELS:
        statements.append(f"{_shape_text(given)} is read as {_picture_size(*given)}")
    if pixels:
        statements.append("bytes are pixels and are divided by 255")
    elif inputs.dtype == np.uint8:
        statements.append(
            f"bytes of shape {_shape_text(given)} are a table and are used as they are; give pixels as "
            f"[n, height, width] or divide them"
        )
    elif inputs.dtype.kind in "iu" and len(given) in (2, 3):
        fits = inputs.size == 0 or (inputs.min() >= 0 and inputs.max() <= _PIXEL)
        advice = "; give bytes (uint8) to have them divided by 255" if fits else f", up to {inputs.max()}"
        statements.append(f"integers are used as they are{advice}")
    elif inputs.dtype.kind in "iu" and len(given) == 1:
        statements.append(
            f"whole numbers of shape {_shape_text(given)} are used as they are, as a table or as token ids; the model "
            f"gets them as floating-point numbers, so an embedding needs tokens.long()"
        )
    return InputLayout(
        given, stored, _PIXEL if pixels else 1.0, (f"inputs: {'; '.join(statements)}",) if statements else ()
    )


def _channels_first(given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a picture with its channels as the first axis."""
    if len(given) != 3:
        return given
    first, middle, last = given
    if first in _CHANNELS and last in _CHANNELS:
        # If only one of the two readings is a square picture, that one is far more likely.
        if (middle == last) == (first == middle):
            raise _two_readings(*given)
        return given if middle == last else (last, first, middle)
    if last in _CHANNELS:
        return last, first, middle
    # Two equal sizes in front: a square picture with many channels last (satellites, microscopes), or a wide picture.
    if first == middle != last and first > 1:
        raise _two_readings(*given)
    return given


def _two_readings(first: int, middle: int, last: int) -> Misconfigured:
    return Misconfigured(
        f"inputs of shape {_shape_text((first, middle, last))} may have their channels first or last: "
        f"{_picture_size(first, middle, last)}, or {_picture_size(last, first, middle)}; expected "
        f"[n, channels, height, width]. If the channels are last, transpose them to the front. If they are first, give "
        f"a fedblade.data.Dataset: its channels are always first."
    )


def _picture_size(channels: int, height: int, width: int) -> str:
    return f"{channels} {'channel' if channels == 1 else 'channels'} of {height}×{width}"


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(('n', *map(str, shape)))}]"
