"""Watching runs while they go on: a view in the terminal and a page on this machine, both reading files only."""

from fedblade.watch._server import open_server
from fedblade.watch._terminal import show

__all__ = ["open_server", "show"]
