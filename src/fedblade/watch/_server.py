"""Serves the page to this machine only: the page, and its version by which the page notices changes."""

import errno
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.loopback_pages import LoopbackServer, Page
from fedblade.watch._page import LivePage
from fedblade.watch._terminal import check_folder

_FIRST_PORT, _PORTS = 8642, 100


class Server(LoopbackServer):
    """Serves the report of a run and its version."""

    def __init__(self, path: Path, port: int) -> None:
        self.page = LivePage(path)
        super().__init__({"/": self._report, "/version": self._version}, port)

    def _report(self) -> Page:
        return Page(self.page.content(), "text/html")

    def _version(self) -> Page:
        return Page(self.page.version().encode())


def open_server(path: Path, port: int = 0) -> Server:
    """A server for the report of `path` on `port`; with 0 the first free port from 8642 on."""
    check_folder(path)
    for candidate in [port] if port else range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        try:
            return Server(path, candidate)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise Misconfigured(
                    f"port {candidate} cannot be used ({error.strerror}). Choose another --port, or leave it out."
                ) from error
    raise Misconfigured(f"no port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1} is free. Choose one with --port.")
