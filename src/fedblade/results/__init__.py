"""Run folders and what is read from them: the one package that knows their file names and formats. No torch."""

from fedblade.results._arrays import Array, Snapshots, Vector, complete, side_of, snapshots, square, vector
from fedblade.results._captions import MEAN_OF_OWN, drawn_sentence, measured_on, own_sentence
from fedblade.results._compare import ComparisonRow, check_threshold, compare, comparison_rows, suggest_threshold
from fedblade.results._comparison_table import comma_separated, comparison_table, latex, markdown
from fedblade.results._fields import built_in_fields, described_fields
from fedblade.results._folder import (
    CHECKPOINTS,
    CLIENTS,
    CONFIG,
    DEPLOYMENT,
    DIAGNOSTICS,
    EVENTS,
    HISTORY,
    METRICS,
    MODEL,
    PARTITION,
    READ,
    SUMMARY,
    RunDirectory,
    run_folders,
)
from fedblade.results._format import MISSING, NAMED, duration, listing, percent, size
from fedblade.results._groups import Curve, Group, count_distinct, differing_keys, flatten, group_runs, telling_keys
from fedblade.results._json_files import Lines, read_lines, read_object
from fedblade.results._last_rounds import last_heading, last_rounds, last_word, over_last
from fedblade.results._order import published_names, setting_number
from fedblade.results._read import check_counts, read_runs
from fedblade.results._record import IN_PROGRESS, STATES, Partition, Round, RunRecord, number
from fedblade.results._table import Table, TableCell, TableColumn, latex_table, markdown_table
from fedblade.results._unreadable import unreadable_note

__all__ = [
    "CHECKPOINTS",
    "CLIENTS",
    "CONFIG",
    "DEPLOYMENT",
    "DIAGNOSTICS",
    "EVENTS",
    "HISTORY",
    "IN_PROGRESS",
    "MEAN_OF_OWN",
    "METRICS",
    "MISSING",
    "MODEL",
    "NAMED",
    "PARTITION",
    "READ",
    "STATES",
    "SUMMARY",
    "Array",
    "ComparisonRow",
    "Curve",
    "Group",
    "Lines",
    "Partition",
    "Round",
    "RunDirectory",
    "RunRecord",
    "Snapshots",
    "Table",
    "TableCell",
    "TableColumn",
    "Vector",
    "built_in_fields",
    "check_counts",
    "check_threshold",
    "comma_separated",
    "compare",
    "comparison_rows",
    "comparison_table",
    "complete",
    "count_distinct",
    "described_fields",
    "differing_keys",
    "drawn_sentence",
    "duration",
    "flatten",
    "group_runs",
    "last_heading",
    "last_rounds",
    "last_word",
    "latex",
    "latex_table",
    "listing",
    "markdown",
    "markdown_table",
    "measured_on",
    "number",
    "over_last",
    "own_sentence",
    "percent",
    "published_names",
    "read_lines",
    "read_object",
    "read_runs",
    "run_folders",
    "setting_number",
    "side_of",
    "size",
    "snapshots",
    "square",
    "suggest_threshold",
    "telling_keys",
    "unreadable_note",
    "vector",
]
