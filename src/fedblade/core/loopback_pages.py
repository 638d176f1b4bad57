"""Pages for this machine only, over HTTP: they can only be read, and no file of the disk is served."""

import socketserver
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names by which a browser on this machine asks for a page, also through a forwarded port. A request with another
name comes from a page elsewhere whose name was made to point to this machine."""


@dataclass(frozen=True)
class Page:
    """The answer to a request: its content, the type of the content, and the status."""

    content: bytes
    kind: str = "text/plain"
    status: HTTPStatus = HTTPStatus.OK


class LoopbackServer(ThreadingHTTPServer):
    """Answers on the loopback address until `serve_forever` is stopped; `pages` gives the page of each path."""

    daemon_threads = True

    def __init__(self, pages: Mapping[str, Callable[[], Page]], port: int) -> None:
        self.pages = pages
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def address(self) -> str:
        """The address of the page `/`."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind the port, without asking a name server for the name of the loopback address."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.socket.getsockname()[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers with the pages, and refuses everything else."""

    server: LoopbackServer
    server_version, sys_version = "fedblade", ""
    timeout = 10

    def parse_request(self) -> bool:
        """Refuse requests from elsewhere and requests that would write, before they are looked at further."""
        if not super().parse_request():
            return False
        self.close_connection = True
        if _host(self.headers.get_all("Host", [])) not in _NAMES:
            self._reply(Page(b"this page is for this machine only\n", status=HTTPStatus.FORBIDDEN))
            return False
        if self.command not in ("GET", "HEAD"):
            self._reply(Page(b"read-only\n", status=HTTPStatus.METHOD_NOT_ALLOWED), Allow="GET, HEAD")
            return False
        return True

    def do_GET(self) -> None:
        """Answer with a page, or that there is nothing."""
        make = self.server.pages.get(self.path)
        self._reply(Page(b"not found\n", status=HTTPStatus.NOT_FOUND) if make is None else make())

    do_HEAD = do_GET  # noqa: N815

    def _reply(self, page: Page, **headers: str) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", f"{page.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(page.content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no line for each request."""


def _host(given: list[str]) -> str:
    """The name in the Host header, without its port; empty unless there is exactly one header."""
    if len(given) != 1:
        return ""
    name, colon, port = given[0].strip().lower().rpartition(":")
    return name if colon and port.isdecimal() else given[0].strip().lower()
