"""Serves the page to this machine only: two addresses that can only be read, and no files of the disk."""

import errno
import socketserver
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.watch._page import LivePage
from fedblade.watch._terminal import check_folder

LOOPBACK = "127.0.0.1"
_FIRST_PORT, _PORTS = 8642, 100
_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names by which a browser on this machine asks for the page, also through a forwarded port. A request with another
name comes from a page elsewhere whose name was made to point to this machine."""


class Server(ThreadingHTTPServer):
    """Answers on the loopback address until `serve_forever` is stopped."""

    daemon_threads = True

    def __init__(self, path: Path, port: int) -> None:
        self.page = LivePage(path)
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind the port, without asking a name server for the name of the loopback address."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.socket.getsockname()[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


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


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` with the page and `/version` with its version, and refuses everything else."""

    server: Server
    server_version, sys_version = "fedblade", ""
    timeout = 10

    def parse_request(self) -> bool:
        """Refuse requests from elsewhere and requests that would write, before they are looked at further."""
        if not super().parse_request():
            return False
        self.close_connection = True
        if _host(self.headers.get_all("Host", [])) not in _NAMES:
            self._reply(HTTPStatus.FORBIDDEN, "text/plain", b"this page is for this machine only\n")
            return False
        if self.command not in ("GET", "HEAD"):
            self._reply(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"read-only\n", Allow="GET, HEAD")
            return False
        return True

    def do_GET(self) -> None:
        """Answer with the page, with its version, or that there is nothing."""
        if self.path == "/":
            self._reply(HTTPStatus.OK, "text/html", self.server.page.content())
        elif self.path == "/version":
            self._reply(HTTPStatus.OK, "text/plain", self.server.page.version().encode())
        else:
            self._reply(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    do_HEAD = do_GET  # noqa: N815

    def _reply(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing: the terminal shows only the address."""


def _host(given: list[str]) -> str:
    """The name in the Host header, without its port; empty unless there is exactly one header."""
    if len(given) != 1:
        return ""
    name, colon, port = given[0].strip().lower().rpartition(":")
    return name if colon and port.isdecimal() else given[0].strip().lower()
