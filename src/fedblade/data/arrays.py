"""A user's arrays from an `.npz` file."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data._user import IN_NPZ, NAMES, as_dataset


@datasets.register()
def arrays(path: str = "") -> Dataset:
    """Arrays x_train, y_train, x_test, y_test from an .npz file, or passed to `fedblade.run` from Python."""
    if not path:
        raise Misconfigured("dataset 'arrays' needs a file: --set dataset.path=FILE.npz (or pass arrays from Python).")
    if not Path(path).is_file():
        raise Misconfigured(
            f"dataset.path '{path}' does not exist. Give the path of an .npz file with {', '.join(NAMES)}."
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise Misconfigured(f"'{path}' holds one array; expected an .npz file with {', '.join(NAMES)}.")
        with loaded as archive:
            missing = [name for name in NAMES if name not in archive]
            if missing:
                hint = nearest(missing[0], archive.files)
                raise Misconfigured(f"'{path}' has no array '{missing[0]}'; expected {', '.join(NAMES)}.{hint}")
            return replace(as_dataset(tuple(archive[name] for name in NAMES)), source=IN_NPZ)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).partition("\n")[0]
        raise Misconfigured(f"'{path}' cannot be read as an .npz file of plain arrays: {reason}.") from error
