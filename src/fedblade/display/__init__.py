"""What results in Python show of themselves: a table and a curve in a notebook, a plot, the report, a pandas frame.

`Display` is the base class of results, comparisons and sweeps. `data_frame` makes a frame of pandas, and `summary_row`
is a run's row of such a frame.
"""

from fedblade.display._display import Display, data_frame, summary_row

__all__ = ["Display", "data_frame", "summary_row"]
