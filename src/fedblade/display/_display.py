"""The base class of what runs give in Python: results, comparisons and sweeps. Frames of pandas for their numbers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedblade.core.extras import need
from fedblade.figures import plot_groups
from fedblade.report import notebook_html, write_report
from fedblade.results import RunRecord, Table, group_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


class Display(ABC):
    """Something that consists of runs, and shows them in a notebook, as a plot, as a page and as a frame."""

    @abstractmethod
    def to_pandas(self) -> "DataFrame":
        """The numbers as a frame of pandas; needs the extra `pandas`."""

    @abstractmethod
    def _records(self) -> Sequence[RunRecord]:
        """The runs."""

    @abstractmethod
    def _tables(self) -> Sequence[Table]:
        """What a notebook shows above the curve."""

    @abstractmethod
    def _title(self) -> str:
        """One line that says what this is."""

    @abstractmethod
    def _page(self) -> Path:
        """The file of the report if nobody names another one."""

    def plot(self, number: str = "test_accuracy") -> "Axes":
        """Draw a number of the history over rounds and return matplotlib's axes; needs the extra `figures`.

        There is a line for each method and setting: the mean over seeds, in a band from the lowest seed to the highest.
        """
        return plot_groups(group_runs(self._records()), number)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML report and return its path.

        Without `path` it is `report.html` in the folder, or `report-….html` in the working directory if nothing was
        written to a folder.
        """
        return write_report(self._records(), (self._page() if path is None else Path(path)).absolute())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self._title(), self._tables(), group_runs(self._records()))


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """A frame with a row for each mapping; a column has missing values where a row lacks its name."""
    frame: DataFrame = need("pandas", "pandas", "pandas", "to_pandas()").DataFrame(list(rows))
    return frame


def summary_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a summary, without its lists and tables."""
    return {key: value for key, value in summary.items() if not isinstance(value, Mapping | list | tuple)}
