"""Many runs that belong together: comparisons, sweeps and reproductions of papers, with their cost and tables."""

from fedblade.studies._cells import Cell, is_finished, outdated, refuse_outdated, rounds_behind, run_cells
from fedblade.studies._comparison import plan_comparison
from fedblade.studies._cost import Estimate, estimate, find_data
from fedblade.studies._reproduction import Plan, plan_reproduction
from fedblade.studies._sweep import Trial, on_test_set, parse_axis, plan_sweep, select_best
from fedblade.studies._tables import (
    Outcome,
    cells_of,
    comma_separated,
    deviation_note,
    latex,
    markdown,
    outcomes,
    planned_cells,
)

__all__ = [
    "Cell",
    "Estimate",
    "Outcome",
    "Plan",
    "Trial",
    "cells_of",
    "comma_separated",
    "deviation_note",
    "estimate",
    "find_data",
    "is_finished",
    "latex",
    "markdown",
    "on_test_set",
    "outcomes",
    "outdated",
    "parse_axis",
    "plan_comparison",
    "plan_reproduction",
    "plan_sweep",
    "planned_cells",
    "refuse_outdated",
    "rounds_behind",
    "run_cells",
    "select_best",
]
