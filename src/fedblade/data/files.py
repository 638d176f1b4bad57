"""A user's files by their endings: tables in CSV or parquet, arrays in .npz."""

from dataclasses import replace
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data.own_files import ENDINGS, ReadSettings, dataset_of, read_own_file, with_test


@datasets.register()
def files(
    path: str = "",
    test_path: str = "",
    label: str = "label",
    missing: Literal["refuse", "fill"] = "refuse",
    drop: str = "",
    categories: str = "",
) -> Dataset:
    """A user's file: a table (.csv, .tsv, .parquet) with a label column, or arrays (.npz).

    Numbers are standardised with mean and deviation of the training samples, and texts are encoded as categories.
    `test_path` is the file of the test samples; without it, a fifth of the samples is held out. `label` names the label
    column, `drop` columns to leave out, and `categories` columns of numbers that are names, with commas between them.
    With `missing` "fill", a missing number becomes the mean, and a missing text no category.
    """
    if not path:
        raise Misconfigured(f"dataset 'files' needs a file: --set dataset.path=FILE ({', '.join(ENDINGS)}).")
    settings = ReadSettings.of(label, missing, drop, categories)
    samples = read_own_file(path, settings)
    if test_path:
        samples = with_test(samples, read_own_file(test_path, settings))
    return replace(dataset_of(samples), name="files")
