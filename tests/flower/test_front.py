"""The front passes on the calls of nodes, unchanged and with limits, and nothing else."""

import asyncio
import base64
import datetime

import httpx
import pytest

pytest.importorskip("flwr")
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata
from flwr.proto.node_pb2 import Node
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedblade.flower import _front, _front_limits
from fedblade.flower._flwr_internals.signatures import is_signed
from fedblade.flower._front import Front
from fedblade.flower._front_limits import Limits


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def headers(key, time=None, signer=None):
    """What a node sends; `signer` is another key that signs in its place."""
    time = (time or datetime.datetime.now(datetime.UTC)).isoformat()
    signature = (signer or key).sign(time.encode(), ec.ECDSA(SHA256()))
    return {
        "flwr-public-key": base64.b64encode(pem(key)).decode(), "flwr-timestamp": time,
        "flwr-signature": base64.b64encode(signature).decode(),
    }  # fmt: skip


def test_a_call_counts_if_a_known_key_signed_it_just_now():
    key, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    now, known = datetime.datetime.now(datetime.UTC), {pem(key)}.__contains__
    assert is_signed(headers(key), known)
    assert not is_signed(headers(other), known)
    assert not is_signed(headers(key, signer=other), known)
    assert not is_signed(headers(key, now - datetime.timedelta(hours=1)), known)
    assert is_signed(headers(key, now + datetime.timedelta(seconds=40)), known)
    assert not is_signed(headers(key, now + datetime.timedelta(seconds=80)), known)
    assert not is_signed({}, known)
    for name, value in (("flwr-public-key", "%"), ("flwr-signature", "AAAA"), ("flwr-timestamp", "yesterday")):
        assert not is_signed(headers(key) | {name: value}, known)
    foreign = pem(rsa.generate_private_key(65537, 2048))
    assert not is_signed(headers(key) | {"flwr-public-key": base64.b64encode(foreign).decode()}, lambda _: True)


@pytest.fixture
def ask(monkeypatch):
    """Asks a front without encryption, behind which a server says what reached it."""

    async def echo(request: Request) -> Response:
        body = await request.body()
        told = {"flwr-told": str(sorted(request.headers)), "flwr-key": str(request.headers.getlist("flwr-public-key"))}
        return Response(body, headers={**told, "set-cookie": "no", "x-other": "no"})

    behind = Starlette(routes=[Route("/{path:path}", echo, methods=["POST"])])
    client = httpx.AsyncClient

    def to_behind(**options):
        return client(transport=httpx.ASGITransport(behind), **{**options, "verify": True})

    monkeypatch.setattr(_front.httpx, "AsyncClient", to_behind)

    def ask(method, path, **options):
        async def once():
            app = Front("http://behind", None, lambda _: False).app()
            caller = client(transport=httpx.ASGITransport(app), base_url="http://front")
            async with app.router.lifespan_context(app), caller:
                return await caller.request(method, path, **options)

        return asyncio.run(once())

    return ask


def test_calls_are_passed_on_with_flower_s_headers_alone(ask):
    answer = ask("POST", "/v1/fleet/pull-object", content=b"body", headers={"flwr-signature": "s", "cookie": "c"})
    assert (answer.status_code, answer.content) == (200, b"body")
    told = answer.headers["flwr-told"]
    assert "flwr-signature" in told
    assert "cookie" not in told
    assert not {"set-cookie", "x-other"} & answer.headers.keys()


def test_of_two_keys_in_one_call_the_one_that_was_checked_is_passed_on(ask):
    given = [("flwr-public-key", "checked"), ("flwr-public-key", "another")]
    assert ask("POST", "/v1/fleet/get-run", headers=given).headers["flwr-key"] == "['checked']"


def pushed(node, *senders):
    messages = [ProtoMessage(metadata=Metadata(src_node_id=sender)) for sender in senders]
    return PushMessagesRequest(node=Node(node_id=node), messages_list=messages).SerializeToString()


@pytest.mark.parametrize(
    ("content", "status"),
    [(pushed(5, 5), 200), (pushed(5), 200), (pushed(5, 6), 403), (pushed(5, 5, 6), 403), (b"none", 403)],
)
def test_a_node_pushes_messages_in_its_own_name_alone(ask, content, status):
    assert ask("POST", "/v1/fleet/push-messages", content=content).status_code == status


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/fleet/pull-object"), ("POST", "/v1/fleet/pull-object/"), ("POST", "/v1/fleet/unknown"), ("POST", "/"),
     ("POST", "/v1/control/list-runs"), ("POST", "/v1/fleet/../control/list-runs"), ("DELETE", "/v1/fleet/get-fab")],
)  # fmt: skip
def test_everything_else_is_not_there(ask, method, path):
    answer = ask(method, path)
    assert (answer.status_code, answer.text) == (404, "not found\n")


def test_a_body_that_is_too_large_is_refused_whatever_it_says_of_itself(ask, monkeypatch):
    monkeypatch.setattr(_front, "_MAX_BODY", 10)

    async def pieces():
        for _ in range(3):
            yield b"12345"

    assert ask("POST", "/v1/fleet/push-object", content=b"1234567890").status_code == 200
    assert ask("POST", "/v1/fleet/push-object", content=b"12345678901").status_code == 413
    assert ask("POST", "/v1/fleet/push-object", content=pieces()).status_code == 413


def test_a_body_that_does_not_arrive_ends_the_call(ask, monkeypatch):
    monkeypatch.setattr(_front, "_BODY_SECONDS", 0.1)

    async def stuck():
        yield b"1"
        await asyncio.sleep(5)

    assert ask("POST", "/v1/fleet/push-object", content=stuck()).status_code == 408


def test_an_address_that_asks_too_often_waits_and_is_then_refused(monkeypatch):
    monkeypatch.setattr(_front_limits, "_PER_SECOND", 20.0)
    monkeypatch.setattr(_front_limits, "_AT_ONCE", 5.0)
    monkeypatch.setattr(_front_limits, "_LONGEST_WAIT", 0.2)

    async def passed(limits, address):
        async with limits.turn(address) as may_pass:
            return may_pass

    async def storm():
        limits = Limits()
        found = await asyncio.gather(*(passed(limits, "a") for _ in range(50)))
        assert await passed(limits, "b")
        await asyncio.sleep(0.3)
        assert await passed(limits, "a")
        return sum(found)

    assert 5 <= asyncio.run(storm()) <= 15


def test_an_address_has_only_so_many_calls_under_way():
    async def storm():
        limits, under_way, most = Limits(), 0, 0

        async def call():
            nonlocal under_way, most
            async with limits.turn("a"):
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(0.001)
                under_way -= 1

        await asyncio.gather(*(call() for _ in range(100)))
        return most

    assert asyncio.run(storm()) == 16


def test_the_addresses_of_one_ipv6_network_are_one_caller(monkeypatch):
    monkeypatch.setattr(_front_limits, "_LONGEST_WAIT", 0.0)
    monkeypatch.setattr(_front_limits, "_AT_ONCE", 1.0)

    async def passed(*addresses):
        limits, found = Limits(), []
        for address in addresses:
            async with limits.turn(address) as may_pass:
                found.append(may_pass)
        return found

    assert asyncio.run(passed("2001:db8::1", "2001:db8::2:3", "2001:db8::4%eth0")) == [True, False, False]
    assert asyncio.run(passed("2001:db8::1", "2001:db8:0:1::1", "10.0.0.1", "10.0.0.2")) == [True] * 4
