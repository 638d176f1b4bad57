"""Frames of pandas, which is imported when the first one is made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedblade.core.errors import MissingExtra

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """A frame with a row for each mapping; a column has missing values where a row lacks its name."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("pandas", "pandas", "to_pandas()") from error
    return pandas.DataFrame(list(rows))


def summary_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a summary, without its lists and tables."""
    return {key: value for key, value in summary.items() if not isinstance(value, Mapping | list | tuple)}
