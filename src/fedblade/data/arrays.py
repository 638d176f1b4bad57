"""A user's arrays from an `.npz` file."""

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data.own_files import dataset_of, read_own_file


@datasets.register()
def arrays(path: str = "") -> Dataset:
    """Arrays x_train, y_train, x_test, y_test from an .npz file, or passed to `fedblade.run` from Python."""
    if not path:
        raise Misconfigured("dataset 'arrays' needs a file: --set dataset.path=FILE.npz (or pass arrays from Python).")
    return dataset_of(read_own_file(path))
