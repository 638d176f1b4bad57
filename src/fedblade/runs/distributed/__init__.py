"""Runs that several processes share: rank 0 leads, the other ranks serve."""

from fedblade.engines.ranks import Ranks
from fedblade.runs.distributed._agreement import agreed_config, agreed_folder
from fedblade.runs.distributed._process import announce_end, must_say_why
from fedblade.runs.distributed._shared_run import join_ranks

__all__ = ["Ranks", "agreed_config", "agreed_folder", "announce_end", "join_ranks", "must_say_why"]
