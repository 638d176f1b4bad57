"""Run folders and what is read from them: the only package that knows their file names and formats. Imports no torch.

- The folder of a run: `RunDirectory` writes it and reads single files, `FolderRecord` is what it says of itself,
  `run_folders` finds run folders, `read_lines` and `read_object` read JSON, `is_later_setting` knows the settings that
  older folders lack, `resume_command` and `report_command` are commands to advise. Constants such as `HISTORY` are file
  names; a record is read from `RECORD_FILES`.
- Runs as values: `read_runs` gives a `RunRecord` per run, `record_in_memory` one of a run without a folder, with
  `Round`, `Partition` and the `fields` that describe its numbers. `unreadable_note` and `numbered` say what was left
  out, `described_fields` and `built_in_fields` describe numbers.
- Groups of runs that differ only in their seed: `group_runs`, `Group`; `flat_settings`, `differing_keys`,
  `distinguishing_keys`, `count_configurations`, `setting_number` and `SKEW_LEVELS` are about their settings.
- Clients of a run on nodes: `contributions` says in how many rounds each was asked and added, and how long its updates
  were; `count_contributions` counts rounds alone, and `participation` does it in any run; `client_name` names one.
- Arrays of the diagnostics: `StoredArray` says how one is read, `snapshots` takes it over rounds, and `evenly` chooses
  some of many rounds.
- The comparison: `comparison_rows` and `compare` give a `ComparisonRow` per group, `comparison_table` makes a `Table`
  for a terminal, a page or a paper, `text_table`, `markdown`, `latex` and `comma_separated` write it;
  `markdown_texts` and `csv_text` write rows of plain texts.
  `paired_difference` and `differences_to_best` say how far two groups are apart on the seeds that both have, with an
  interval.
- Words for captions and tables: numbers (`percent`, `duration`, `size`, `size_unit`), the last rounds
  (`last_rounds`, `over_last_rounds`, `last_rounds_heading`, `last_rounds_of_run`), methods without a global model
  (`personal_models_sentence`, `coverage_sentence`).
"""

from fedblade.results._comparison import ComparisonRow, check_threshold, compare, comparison_rows, suggest_threshold
from fedblade.results._comparison_table import (
    CALIBRATED_NOTE,
    CLAIMED_NOTE,
    DAGGER,
    DOUBLE_DAGGER,
    comma_separated,
    comparison_table,
    latex,
    markdown,
)
from fedblade.results._contributions import Contribution, client_name, contributions, count_contributions, participation
from fedblade.results._diagnostic_arrays import (
    Snapshots,
    StoredArray,
    Vector,
    array_length,
    complete_list,
    evenly,
    number_list,
    snapshots,
    square_matrix,
)
from fedblade.results._fields import built_in_fields, described_fields
from fedblade.results._file_names import (
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
    RECORD,
    RECORD_FILES,
    SUMMARY,
    run_folders,
)
from fedblade.results._folder_record import FolderRecord, file_digest, read_record
from fedblade.results._format import (
    MISSING,
    MOST_NAMED,
    duration,
    percent,
    report_command,
    resume_command,
    short_names,
    size,
    size_unit,
)
from fedblade.results._group_order import SKEW_LEVELS, setting_number
from fedblade.results._groups import (
    Group,
    count_configurations,
    differing_keys,
    distinguishing_keys,
    flat_settings,
    group_runs,
)
from fedblade.results._in_memory import record_in_memory
from fedblade.results._json_files import read_lines, read_object
from fedblade.results._migrations import is_later_setting
from fedblade.results._paired import PairedDifference, differences_to_best, paired_difference
from fedblade.results._read import check_counts, read_runs
from fedblade.results._record import IN_PROGRESS, STATE_COUNTERS, Partition, Round, RunRecord, finite_number
from fedblade.results._run_directory import RunDirectory
from fedblade.results._sentences import (
    MEAN_OVER_PERSONAL_MODELS,
    coverage_sentence,
    last_rounds,
    last_rounds_heading,
    last_rounds_of_run,
    over_last_rounds,
    personal_models_sentence,
    samples_of_personal_models,
)
from fedblade.results._table import (
    Table,
    TableCell,
    TableColumn,
    csv_text,
    latex_table,
    markdown_table,
    markdown_texts,
    text_table,
)
from fedblade.results._unreadable import numbered, unreadable_note

__all__ = [
    "CALIBRATED_NOTE",
    "CHECKPOINTS",
    "CLAIMED_NOTE",
    "CLIENTS",
    "CONFIG",
    "DAGGER",
    "DEPLOYMENT",
    "DIAGNOSTICS",
    "DOUBLE_DAGGER",
    "EVENTS",
    "HISTORY",
    "IN_PROGRESS",
    "MEAN_OVER_PERSONAL_MODELS",
    "METRICS",
    "MISSING",
    "MODEL",
    "MOST_NAMED",
    "PARTITION",
    "RECORD",
    "RECORD_FILES",
    "SKEW_LEVELS",
    "STATE_COUNTERS",
    "SUMMARY",
    "ComparisonRow",
    "Contribution",
    "FolderRecord",
    "Group",
    "PairedDifference",
    "Partition",
    "Round",
    "RunDirectory",
    "RunRecord",
    "Snapshots",
    "StoredArray",
    "Table",
    "TableCell",
    "TableColumn",
    "Vector",
    "array_length",
    "built_in_fields",
    "check_counts",
    "check_threshold",
    "client_name",
    "comma_separated",
    "compare",
    "comparison_rows",
    "comparison_table",
    "complete_list",
    "contributions",
    "count_configurations",
    "count_contributions",
    "coverage_sentence",
    "csv_text",
    "described_fields",
    "differences_to_best",
    "differing_keys",
    "distinguishing_keys",
    "duration",
    "evenly",
    "file_digest",
    "finite_number",
    "flat_settings",
    "group_runs",
    "is_later_setting",
    "last_rounds",
    "last_rounds_heading",
    "last_rounds_of_run",
    "latex",
    "latex_table",
    "markdown",
    "markdown_table",
    "markdown_texts",
    "number_list",
    "numbered",
    "over_last_rounds",
    "paired_difference",
    "participation",
    "percent",
    "personal_models_sentence",
    "read_lines",
    "read_object",
    "read_record",
    "read_runs",
    "record_in_memory",
    "report_command",
    "resume_command",
    "run_folders",
    "samples_of_personal_models",
    "setting_number",
    "short_names",
    "size",
    "size_unit",
    "snapshots",
    "square_matrix",
    "suggest_threshold",
    "text_table",
    "unreadable_note",
]
