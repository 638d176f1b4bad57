"""Run folders below `tmp_path/runs`."""

from support.report_runs import make_run

__all__ = ["make_run"]
