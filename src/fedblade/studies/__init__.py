"""Many runs that belong together: comparisons, sweeps and reproductions of papers, with their cost and tables.

`compare` and `sweep` are for scripts, and plan, train and tabulate as the commands do.
"""

from fedblade.studies._comparison import Comparison, compare, plan_comparison
from fedblade.studies._estimate import Estimate, estimate_cost, find_data
from fedblade.studies._jobs import Jobs, plan_jobs
from fedblade.studies._outcome_table import outcome_files, outcome_table, planned_table
from fedblade.studies._outcomes import outcomes
from fedblade.studies._planned_run import PlannedRun, outdated_runs, refuse_outdated, run_planned
from fedblade.studies._python_sweep import Sweep, SweepTrial, sweep
from fedblade.studies._reproduction import Reproduction, plan_reproduction
from fedblade.studies._side_by_side import run_side_by_side, train_runs
from fedblade.studies._study_display import study_display
from fedblade.studies._sweep import (
    Axis,
    Trial,
    parse_axis,
    plan_sweep,
    select_best,
    sweep_table,
    tuning_axes,
    value_text,
)

__all__ = [
    "Axis",
    "Comparison",
    "Estimate",
    "Jobs",
    "PlannedRun",
    "Reproduction",
    "Sweep",
    "SweepTrial",
    "Trial",
    "compare",
    "estimate_cost",
    "find_data",
    "outcome_files",
    "outcome_table",
    "outcomes",
    "outdated_runs",
    "parse_axis",
    "plan_comparison",
    "plan_jobs",
    "plan_reproduction",
    "plan_sweep",
    "planned_table",
    "refuse_outdated",
    "run_planned",
    "run_side_by_side",
    "select_best",
    "study_display",
    "sweep",
    "sweep_table",
    "train_runs",
    "tuning_axes",
    "value_text",
]
