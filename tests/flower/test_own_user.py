"""Loopback servers answer only their own user, by what Linux knows of a connection."""

import asyncio
import os
import socket

import pytest

from fedblade.flower._own_user import OwnUserOnly, owner_of


@pytest.fixture
def connection():
    """A connection of this process to itself: the client's and the server's address."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield client, server.getsockname()


def test_the_owner_of_an_open_connection_is_found(connection):
    client, server = connection
    assert owner_of(client.getsockname(), server) == os.geteuid()


def test_a_connection_that_is_closed_or_made_up_has_no_owner(connection):
    """Linux says that a closed connection belongs to root, so it must not count."""
    client, server = connection
    address = client.getsockname()
    client.close()
    assert owner_of(address, server) is None
    assert owner_of(("127.0.0.1", 0), server) is None
    assert owner_of(("not an address", 1), server) is None


def answer(client, server, *headers):
    """What the guard answers, and whether the server behind it was asked."""
    asked, sent = [], []

    async def app(scope, receive, send):
        asked.append(scope["type"])

    async def send(message):
        sent.append(message)

    async def receive():
        return {}

    scope = {"type": "http", "client": client, "server": server, "headers": headers}
    asyncio.run(OwnUserOnly(app)(scope, receive, send))
    return asked, [message["status"] for message in sent if "status" in message]


def test_only_requests_of_this_user_are_passed_on(connection):
    client, server = connection
    assert answer(client.getsockname(), server) == (["http"], [])
    assert answer(("127.0.0.1", 0), server) == ([], [403])
    assert answer(None, server) == ([], [403])


@pytest.mark.parametrize("header", [b"x-forwarded-for", b"X-Forwarded-Proto", b"forwarded"])
def test_a_request_that_says_itself_who_its_client_is_counts_for_nobody(connection, header):
    """Flower's web server puts the address in such a header, with its port, in the place of the caller's."""
    client, server = connection
    assert answer(client.getsockname(), server, (b"host", b"here")) == (["http"], [])
    assert answer(client.getsockname(), server, (b"host", b"here"), (header, b"127.0.0.1")) == ([], [403])
