"""Data sets: one file per source, all giving the same `Dataset` value, and the recipes that augment them."""

from fedblade.data._dataset import Dataset, Part, to_samples
from fedblade.data._recipes import RECIPE_NAMES, apply_recipe
from fedblade.data._user import as_dataset

__all__ = ["RECIPE_NAMES", "Dataset", "Part", "apply_recipe", "as_dataset", "to_samples"]
