"""Runs that several processes share: rank 0 leads, the other ranks serve."""

from fedblade.runs.distributed._agreement import agreed_config, agreed_folder, must_report_error
from fedblade.runs.distributed._shared_run import join_ranks

__all__ = ["agreed_config", "agreed_folder", "join_ranks", "must_report_error"]
