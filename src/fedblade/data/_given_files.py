"""Files that a user wants predictions for, pictures and arrays, as inputs [n, …] of a trained model."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._pictures import ENDINGS, Fit, Picture, decode, picture_shape
from fedblade.data._source import Array

ARRAY_ENDINGS = (".npy", ".npz")
INPUT_ENDINGS = frozenset({*ENDINGS, *ARRAY_ENDINGS})
"""Files in a folder that a model of arrays or pictures reads."""
TABLE_ENDINGS = frozenset({".csv", ".tsv", ".parquet"})
"""Files in a folder that a model of a table reads."""
_NAMES_IN_NPZ = ("x", "inputs", "x_test")
_BYTES = 255.0
_GREY = ("1", "L")
_AS_STORED = "Give the inputs as an array in a .npy file, in the type and scale of training."


@dataclass(frozen=True)
class Expected:
    """The inputs of training: shape, type and unit of a stored input, and the shape as it was given if it differs.

    `fit` says how training made pictures equal in size, for a data set of pictures in any size.
    """

    shape: tuple[int, ...]
    dtype: str
    unit: float
    given_shape: tuple[int, ...] | None = None
    fit: Fit | None = None

    @staticmethod
    def of(facts: Mapping[str, Any], dataset: Mapping[str, Any]) -> "Expected":
        """From the facts of a trained model and the section `dataset` of the run's configuration."""
        shape, given = tuple(facts["input_shape"]), facts.get("given_shape")
        resized = dataset.get("name") in ("image_folder", "parquet")
        size = int(dataset.get("size", 0)) if resized else 0
        fit = Fit(shape[-1], "cover" if size else "exact", shape[0]) if resized else None
        return Expected(shape, facts.get("dtype", "uint8"), facts["unit"], None if given is None else tuple(given), fit)


def given_files(paths: Sequence[Path], endings: Collection[str] = INPUT_ENDINGS) -> list[Path]:
    """The files that are named, and those with these endings in the folders that are named, in order."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Misconfigured(f"'{path}' does not exist; expected a file or a folder. Check the path.")
        below = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        found = [file for file in below if path.is_file() or file.suffix.lower() in endings]
        if not found:
            raise Misconfigured(
                f"the folder '{path}' holds no file that this model reads ({', '.join(sorted(endings))}). Check the "
                f"folder."
            )
        files += found
    return files


def read_given(file: Path, expected: Expected) -> tuple[Array, list[str]]:
    """The inputs [n, …] of a file, and a name for each: the file, with the row where an array has several inputs."""
    if file.suffix.lower() not in ARRAY_ENDINGS:
        return _read_picture(file, expected), [str(file)]
    array = _read_array(file)
    if array.shape in (expected.shape, expected.given_shape):
        return array[None], [str(file)]
    if array.ndim == 0 or array.shape[1:] not in (expected.shape, expected.given_shape):
        wanted = ", ".join(map(str, expected.given_shape or expected.shape))
        raise Misconfigured(
            f"'{file}' has an array of shape {array.shape}; expected (n, {wanted}), as in training. Reshape it."
        )
    if array.dtype.kind not in "biuf":
        raise Misconfigured(f"'{file}' has an array of type {array.dtype}; expected numbers, as in training.")
    return array, [f"{file}[{row}]" for row in range(len(array))]


def _read_array(file: Path) -> Array:
    """The array of a file. Pickled objects are refused."""
    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            names = [name for name in _NAMES_IN_NPZ if name in content.files] or content.files
            if len(names) > 1 and names[0] not in _NAMES_IN_NPZ:
                raise Misconfigured(
                    f"'{file}' has the arrays {', '.join(names)}; expected one. Name that of the inputs 'x'."
                )
            inputs: Array = content[names[0]]
            return inputs
    except (ValueError, EOFError, BadZipFile, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(f"'{file}' cannot be read as an array ({reason}). Write it with numpy.save.") from error


def _read_picture(file: Path, expected: Expected) -> Array:
    """A picture as an input [1, channels, height, width], in the scale of training."""
    shape = expected.shape
    if len(shape) != 3 or expected.dtype != "uint8" or expected.unit == 1.0 or shape[0] not in (1, 3):
        raise Misconfigured(
            f"'{file}': the model was trained on {expected.dtype} inputs of shape {shape}, which no picture has. "
            f"{_AS_STORED}"
        )
    picture = Picture(file, 0)
    if expected.fit is None:
        _check_picture(picture, shape)
    pixels = decode(picture, expected.fit or Fit(shape[-1], "as_is", shape[0]))
    scaled = pixels if expected.unit == _BYTES else np.round(pixels * (expected.unit / _BYTES)).astype(np.uint8)
    return scaled[None]


def _check_picture(picture: Picture, shape: tuple[int, ...]) -> None:
    """Refuse a picture of another size, and a colour picture for a model of grey ones."""
    (height, width), mode = picture_shape(picture)
    if (height, width) != shape[1:]:
        raise Misconfigured(
            f"'{picture.name}' has {width}×{height} pixels; expected {shape[2]}×{shape[1]}, as in training. Resize it."
        )
    if shape[0] == 1 and mode not in _GREY:
        raise Misconfigured(
            f"'{picture.name}' has colours ({mode}); expected one channel of grey (L), as in training. Convert it."
        )
