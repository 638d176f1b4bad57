"""Runs that several processes share: rank 0 leads, the other ranks serve."""

from fedblade.runs.distributed._agreement import agreed_config, agreed_folder, unheard
from fedblade.runs.distributed._shared_run import joined

__all__ = ["agreed_config", "agreed_folder", "joined", "unheard"]
