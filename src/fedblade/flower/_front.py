"""The front of a coordinator: the only port that other machines reach.

All calls of Flower share one port: those of nodes (Fleet), those that start runs (Control) and those that carry out
tasks (Runtime). The SuperLink therefore listens on loopback, and the front passes on the calls of nodes, with limits.
It answers 404 to everything else.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedblade.flower import certificates
from fedblade.flower._flwr_internals.signatures import is_from_one_node, is_signed
from fedblade.flower._front_limits import Limits, listen
from fedblade.flower.admissions import CurrentAdmissions
from fedblade.flower.app_folder import AppFolder

_PUSH_MESSAGES = "push-messages"
_CALLS = (
    "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", _PUSH_MESSAGES, "get-run", "get-fab",
    "push-object", "pull-object", "confirm-message-received",
)  # fmt: skip
_CALLS_WITHOUT_KEYS = ("register-node", "unregister-node")
"""A node without a key makes one and registers it itself."""
_PASSED_ON = ("content-type", "accept")
_FLOWER_HEADERS = "flwr-"
_MAX_BODY = 16 * 2**20
"""Flower sends arrays in pieces of 5 MiB; the largest other piece is the text of a reply's facts."""
_BODY_SECONDS = _ANSWER_SECONDS = 60.0
_MAX_UNREAD, _UNREAD_SECONDS = 2 * _MAX_BODY, 5.0
"""How much of the body of a refused call is read and thrown away, and for how long."""
_KEPT_SECONDS = 2.0
"""How long a free connection to the SuperLink is kept; the SuperLink closes it after 5 seconds."""
_FIRST_REQUEST_SECONDS, _NEXT_REQUEST_SECONDS = 20.0, 5
"""How long a connection may take until the headers of a request have arrived."""


_NO_KEY = "the call is not signed with a key that the coordinator has admitted, or the clocks differ by a minute"


class _TooLarge(Exception):
    """The body of a request is larger than any call of a node."""


class Front:
    """Passes on the calls of nodes to the SuperLink at `target`, such as `https://127.0.0.1:8000`.

    With an authority, the way to the SuperLink is encrypted, and a call must be signed with a key that `is_admitted`.
    Otherwise nothing is encrypted and nodes have no keys.
    """

    def __init__(self, target: str, authority: Path | None, is_admitted: Callable[[bytes], bool]) -> None:
        self._target, self._authority, self._is_admitted = target, authority, is_admitted
        self._limits = Limits()
        self._client: httpx.AsyncClient | None = None

    def app(self) -> Starlette:
        """The front as a web application."""
        calls = _CALLS if self._authority is not None else (*_CALLS, *_CALLS_WITHOUT_KEYS)
        routes = [Route(f"/v1/fleet/{call}", self._handler(call), methods=["POST"]) for call in calls]
        app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={405: _not_found, 404: _not_found})
        app.router.redirect_slashes = False
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        trust = True if self._authority is None else ssl.create_default_context(cafile=str(self._authority))
        limits = httpx.Limits(max_connections=None, keepalive_expiry=_KEPT_SECONDS)
        async with httpx.AsyncClient(verify=trust, limits=limits, timeout=_ANSWER_SECONDS, trust_env=False) as client:
            self._client = client
            yield

    def _handler(self, call: str) -> Any:
        async def handle(request: Request) -> Response:
            async with self._limits.turn(request.client.host if request.client else "") as may_pass:
                if not may_pass:
                    return _Refusal(503, "too many requests")
                if self._authority is not None and not is_signed(request.headers, self._is_admitted):
                    return _Refusal(401, _NO_KEY)
                return await self._pass_on(call, request)

        return handle

    async def _pass_on(self, call: str, request: Request) -> Response:
        """The SuperLink's answer to a call. The path is ours, so no path of the request can lead elsewhere."""
        assert self._client is not None  # noqa: S101
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await _read(request)
        except _TooLarge:
            return _Refusal(413, f"a call has at most {_MAX_BODY} bytes")
        except (TimeoutError, ClientDisconnect):
            return _refused(408, f"the call did not arrive within {_BODY_SECONDS:.0f} seconds")
        if call == _PUSH_MESSAGES and not is_from_one_node(body):
            return _refused(403, "a node sends messages in its own name alone")
        url, headers = f"{self._target}/v1/fleet/{call}", _flower_headers(request.headers)
        try:
            answer = await self._client.post(url, content=body, headers=headers)
        except httpx.TransportError:
            return _refused(503, "the SuperLink does not answer at the moment")
        return Response(answer.content, answer.status_code, _flower_headers(answer.headers))


async def _read(request: Request) -> bytes:
    """The body of a request; a body that is too large is not read to its end."""
    if int(request.headers.get("content-length", "0")) > _MAX_BODY:
        raise _TooLarge
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY:
            raise _TooLarge
    return bytes(body)


def _flower_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are passed on. Of a header that stands there twice, the value whose signature was checked."""
    return {name: headers[name] for name in headers if name in _PASSED_ON or name.startswith(_FLOWER_HEADERS)}


def _refused(status: int, text: str) -> Response:
    """The refusal of a call whose body is read, or does not arrive."""
    return PlainTextResponse(f"{text}\n", status, {"connection": "close"})


class _Refusal(Response):
    """The refusal of a call whose body may still be on its way: what comes is thrown away, then the connection ends.

    If a connection is closed while bytes are unread, the caller's system throws the answer away too.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{text}\n", status, {"connection": "close"}, "text/plain")

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer at once, and end the answer after the body of the call."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        unread = _MAX_UNREAD
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNREAD_SECONDS):
                while unread > 0 and (piece := await receive()).get("more_body"):
                    unread -= len(piece["body"])
        await send({"type": "http.response.body", "body": b""})


async def _not_found(_request: Request, _error: Exception) -> Response:
    return _Refusal(404, "not found")


class _Connection(H11Protocol):
    """A connection that is closed if a request does not begin in time: bytes alone are no sign of life."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(_FIRST_REQUEST_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes. The time for a request runs on until its headers are complete, which ends it in the base class.

        The base class ends it at the first byte of a request, and a caller could keep the rest back for ever.
        """
        self.conn.receive_data(data)
        self.handle_events()


def serve(app: AppFolder, host: str, port: int, target: str) -> None:
    """Serve the front of an app on a port until SIGTERM; encrypted if the SuperLink at `target` is."""
    authority, files = None, {}
    if target.startswith("https:"):
        authority = app.certificates / certificates.CA_CERTIFICATE
        files = {
            "ssl_certfile": str(app.certificates / certificates.SERVER_CERTIFICATE),
            "ssl_keyfile": str(app.certificates / certificates.SERVER_KEY),
        }
    front = Front(target, authority, CurrentAdmissions(app).has_key)
    uvicorn.Server(web_server(front.app(), **files)).run(listen(host, port))


def web_server(app: Any, **files: str) -> uvicorn.Config:
    """How an app is served; with the files of a certificate and its key, over TLS."""
    config = uvicorn.Config(
        app,
        loop="asyncio",  # another loop would not accept connections through the listening sockets of ours
        http=_Connection,
        ws="none",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=_NEXT_REQUEST_SECONDS,
        **files,  # type: ignore[arg-type]
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3  # nodes are ours, and need no older version
    return config


def main(arguments: Sequence[str]) -> None:
    """Serve with the folder of an app, a host, a port and the address of the SuperLink."""
    folder, host, port, target = arguments
    serve(AppFolder(Path(folder)), host, int(port), target)


if __name__ == "__main__":
    main(sys.argv[1:])
