"""Shows runs while they go on: in the terminal and as a page on this machine. Both only read files."""

from fedblade.watch._server import open_server
from fedblade.watch._terminal import show

__all__ = ["open_server", "show"]
