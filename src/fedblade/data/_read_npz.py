"""Arrays of a user from an `.npz` file; no pickle is read."""

from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured, nearest
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._user_arrays import IN_NPZ, NAMES

_SHORT = {"x_train": "x", "y_train": "y"}


def read_npz(path: Path, settings: ReadSettings) -> OwnSamples:  # noqa: ARG001
    """The arrays x_train and y_train (or x and y), and x_test and y_test if the file has them."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise Misconfigured(f"'{path}' holds one array; expected an .npz file with {', '.join(NAMES)}.")
        with loaded as archive:
            stored = {name: name if name in archive else _SHORT.get(name, name) for name in NAMES}
            arrays = {name: archive[key] for name, key in stored.items() if key in archive}
            present = archive.files
    except Misconfigured:
        raise
    except Exception as error:  # a file can be broken in any way, and the error's text may repeat parts of it
        raise Misconfigured(
            f"'{path}' cannot be read as an .npz file of plain arrays ({type(error).__name__}). Write it with "
            f"numpy.savez, with {', '.join(NAMES)} as arrays of numbers."
        ) from error
    needed = NAMES if any(name in arrays for name in NAMES[2:]) else NAMES[:2]
    missing = [name for name in needed if name not in arrays]
    if missing:
        hint = nearest(missing[0], present)
        raise Misconfigured(f"'{path}' has no array '{missing[0]}'; expected {', '.join(NAMES)}.{hint}")
    x_test, y_test = (arrays.get(name) for name in NAMES[2:])
    return OwnSamples(arrays["x_train"], arrays["y_train"], x_test, y_test, IN_NPZ)
