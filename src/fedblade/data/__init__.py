"""Data sets: one file per source, all giving the same `Dataset` value."""

from fedblade.data._dataset import Dataset, Part, as_dataset, to_samples

__all__ = ["Dataset", "Part", "as_dataset", "to_samples"]
