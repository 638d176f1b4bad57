"""What comes over connections to the front: slow, broken, ambiguous, and too many."""

import asyncio
import contextlib
import socket
import ssl
import time
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr")
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedblade.flower import _front, _front_limits, certificates
from fedblade.flower._front import Front, web_server
from fedblade.flower._front_limits import listen


def served(app, call, **files):
    """What a caller finds who is given the port of a served app."""

    async def serve_and_call(listener):
        server = uvicorn.Server(web_server(app, **files))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listener]))
            try:
                return await asyncio.to_thread(call, listener.getsockname()[1])
            finally:
                server.should_exit = True

    (listener,) = listen("127.0.0.1", 0)
    with listener:
        listener.listen()
        return asyncio.run(serve_and_call(listener))


def test_a_call_that_is_refused_in_the_middle_of_its_body_gets_the_whole_answer():
    """A server that hangs up on bytes that it has not read has the caller's system forget the answer."""

    def call(port):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            head = f"POST /v1/fleet/push-object HTTP/1.1\r\nhost: front\r\ncontent-length: {2**25}\r\n\r\n"
            caller.sendall(head.encode() + bytes(2**20))
            time.sleep(0.2)
            caller.sendall(bytes(2**20))
            time.sleep(0.2)
            caller.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: caller.recv(10_000), b""))

    answer = served(Front("http://127.0.0.1:9", None, lambda _: False).app(), call)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"a call has at most 16777216 bytes\n")


def has_ended(peer):
    """Whether the other side has hung up, without a word."""
    try:
        return peer.recv(1, socket.MSG_DONTWAIT) == b""
    except OSError as error:
        return not isinstance(error, BlockingIOError)


def test_connections_that_never_begin_tls_count_for_the_limit_of_their_address(monkeypatch, tmp_path):
    monkeypatch.setattr(_front_limits, "_MAX_CONNECTIONS_OF_ONE", 2)
    certificates.make_certificates(tmp_path / "certs")
    (listener,) = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "certs" / "server.crt", tmp_path / "certs" / "server.key")

    async def try_connections():
        async with await asyncio.start_server(lambda *_: None, sock=listener, ssl=context):
            found = []
            with contextlib.ExitStack() as opened:
                peers = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)]
                await asyncio.sleep(0.3)
                found += [has_ended(peer) for peer in peers]
            await asyncio.sleep(0.3)
            with socket.create_connection(("127.0.0.1", port)) as peer:
                await asyncio.sleep(0.3)
                return [*found, has_ended(peer)]

    assert asyncio.run(try_connections()) == [False, False, True, False]
    listener.close()


HELLO = b"POST / HTTP/1.1\r\nhost: front\r\ncontent-length: 0\r\n\r\n"


async def friendly(scope, receive, send):
    """Answers every request, and leaves the connection open."""
    assert scope["type"] == "http"
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("before", [0, 2])
def test_a_request_that_comes_byte_by_byte_ends_the_connection(monkeypatch, before):
    """The first of a connection, and one that comes after others."""
    monkeypatch.setattr(_front, "_FIRST_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(_front, "_NEXT_REQUEST_SECONDS", 0.3)

    def call(port):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            for _ in range(before):
                caller.sendall(HELLO)
                assert caller.recv(10_000).startswith(b"HTTP/1.1 200 ")
            for sent, byte in enumerate(HELLO):
                with contextlib.suppress(ConnectionError):
                    caller.sendall(bytes([byte]))
                time.sleep(0.1)
                if has_ended(caller):
                    return sent
        return len(HELLO)

    assert 1 <= served(friendly, call) < 20


def test_an_older_tls_than_the_newest_is_refused(tmp_path):
    certificates.make_certificates(tmp_path / "certs")
    files = {"ssl_certfile": tmp_path / "certs" / "server.crt", "ssl_keyfile": tmp_path / "certs" / "server.key"}

    def version(newest):
        def call(port):
            context = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.crt")
            context.maximum_version = newest
            plain = socket.create_connection(("127.0.0.1", port))
            with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                return secure.version()

        return served(friendly, call, **{name: str(file) for name, file in files.items()})

    assert version(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ExceptionGroup) as refused:
        version(ssl.TLSVersion.TLSv1_2)
    assert refused.group_contains(ssl.SSLError)


@pytest.fixture
def behind(monkeypatch):
    """A front, and the calls that have reached the server behind it."""
    calls = []

    async def noted(request: Request) -> Response:
        calls.append((request.url.path, await request.body()))
        return Response()

    server = Starlette(routes=[Route("/{path:path}", noted, methods=["POST"])])
    client = httpx.AsyncClient
    monkeypatch.setattr(
        _front.httpx, "AsyncClient", lambda **given: client(**{**given, "transport": httpx.ASGITransport(server)})
    )
    return SimpleNamespace(front=Front("http://behind", None, lambda _: False).app(), calls=calls)


PASSED = "POST /v1/fleet/pull-object HTTP/1.1\r\nhost: front\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"{PASSED}content-length: 4\r\ncontent-length: 5\r\n\r\nabcde", 400),
        (f"{PASSED}content-length: +5\r\n\r\nabcde", 400),
        (f"{PASSED}content-length: {'9' * 5000}\r\n\r\n", 400),
        (f"{PASSED}content-length: {2**63}\r\n\r\n", 413),
        (f"{PASSED}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (f"{PASSED}transfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (f"{PASSED}flwr-key: a\rb\r\ncontent-length: 0\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404),
        ("CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: front\r\n\r\n", 404),
        ("POST http://behind/v1/control/list-runs HTTP/1.1\r\nhost: behind\r\ncontent-length: 0\r\n\r\n", 404),
        ("POST //v1/control/list-runs HTTP/1.1\r\nhost: front\r\ncontent-length: 0\r\n\r\n", 404),
        ("POST /v1/fleet/%2e%2e/control/list-runs HTTP/1.1\r\nhost: front\r\ncontent-length: 0\r\n\r\n", 404),
        ("POST /v1/fleet/pull-object%00 HTTP/1.1\r\nhost: front\r\ncontent-length: 0\r\n\r\n", 404),
    ],
)
def test_what_is_no_plain_call_reaches_nothing(behind, request_, status):
    def call(port):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(request_.encode())
            return caller.recv(10_000)

    assert served(behind.front, call).startswith(f"HTTP/1.1 {status} ".encode())
    assert behind.calls == []


def test_what_follows_a_call_in_its_body_is_a_call_of_its_own(behind):
    """By the one header the body ends, by the other it goes on; a call hidden in it would be checked like any other."""
    hidden = "POST /v1/control/list-runs HTTP/1.1\r\nhost: front\r\ncontent-length: 0\r\n\r\n"
    both = f"content-length: {5 + len(hidden)}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"

    def call(port):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall((PASSED + both + hidden).encode())
            return b"".join(iter(lambda: caller.recv(10_000), b""))

    answers = served(behind.front, call)
    assert [line.split()[1] for line in answers.splitlines() if line.startswith(b"HTTP/1.1 ")] == [b"200", b"404"]
    assert behind.calls == [("/v1/fleet/pull-object", b"")]
