"""Frames of pandas, which is imported when the first one is made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedblade.core.extras import need

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """A frame with a row for each mapping; a column has missing values where a row lacks its name."""
    frame: DataFrame = need("pandas", "pandas", "pandas", "to_pandas()").DataFrame(list(rows))
    return frame


def summary_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a summary, without its lists and tables."""
    return {key: value for key, value in summary.items() if not isinstance(value, Mapping | list | tuple)}
