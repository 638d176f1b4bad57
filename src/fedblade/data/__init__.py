"""Data sets: one file per source, all giving the same `Dataset` value, and the recipes that augment them."""

from fedblade.data._clients import ClientData
from fedblade.data._dataset import Dataset, Part, to_samples
from fedblade.data._given_files import INPUT_ENDINGS, TABLE_ENDINGS, Expected, given_files, read_given
from fedblade.data._hub import allow_downloads
from fedblade.data._load import load
from fedblade.data._recipes import RECIPE_NAMES, apply_recipe
from fedblade.data._source import Array
from fedblade.data._spec import VARIABLE, cache_root
from fedblade.data._status import find_spec, status
from fedblade.data._user import as_dataset
from fedblade.data._user_arrays import IN_NPZ, NAMES
from fedblade.data._user_labels import Numbering, as_labels

__all__ = [
    "INPUT_ENDINGS",
    "IN_NPZ",
    "NAMES",
    "RECIPE_NAMES",
    "TABLE_ENDINGS",
    "VARIABLE",
    "Array",
    "ClientData",
    "Dataset",
    "Expected",
    "Numbering",
    "Part",
    "allow_downloads",
    "apply_recipe",
    "as_dataset",
    "as_labels",
    "cache_root",
    "find_spec",
    "given_files",
    "load",
    "read_given",
    "status",
    "to_samples",
]
