"""Limits on one caller, so that it cannot keep the coordinator from serving the others.

A caller is an IPv4 address, or a network of IPv6: whoever has one IPv6 address has 2⁶⁴ of them.
"""

import asyncio
import contextlib
import ipaddress
import socket
import time
import weakref
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

_PER_SECOND, _AT_ONCE = 200.0, 1000.0
"""Requests of one address: how many a second over a long time, and how many more at once."""
_LONGEST_WAIT = 5.0
"""Seconds that a request beyond the rate may be made to wait; if it would wait longer, it is refused."""
_MAX_UNDER_WAY = 16
_MAX_KNOWN, _FORGET_SECONDS = 10_000, 60.0
_NETWORK_BITS = 64
"""Bits of an IPv6 address that name its network."""
_MAX_CONNECTIONS, _MAX_CONNECTIONS_OF_ONE = 1024, 128


class _Peer:
    """One address: when the requests so far are paid for, and those that are under way."""

    def __init__(self) -> None:
        self.paid_until = 0.0
        self.under_way = asyncio.Semaphore(_MAX_UNDER_WAY)

    def wait(self, now: float) -> float:
        """How long the next request has to wait."""
        self.paid_until = max(self.paid_until, now - _AT_ONCE / _PER_SECOND) + 1 / _PER_SECOND
        return max(0.0, self.paid_until - now)


class Limits:
    """The limits of all addresses."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[bool]:
        """Wait for the turn of a request; whether it may pass, or comes too often."""
        now = time.monotonic()
        if len(self._peers) > _MAX_KNOWN:
            self._peers = {key: peer for key, peer in self._peers.items() if peer.paid_until > now - _FORGET_SECONDS}
        peer = self._peers.setdefault(_caller(address), _Peer())
        wait = peer.wait(now)
        if wait > _LONGEST_WAIT:
            peer.paid_until -= 1 / _PER_SECOND
            yield False
            return
        await asyncio.sleep(wait)
        async with peer.under_way:
            yield True


class _Listener(socket.socket):
    """A listening socket that hangs up at once on an address with too many connections.

    Connections count from their first moment, so that a TLS handshake that never ends counts too.
    """

    def __init__(self, family: int, connections: MutableMapping[socket.socket, str]) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; a connection that is refused counts as aborted by its peer."""
        connection, peer = super().accept()
        there = [caller for opened, caller in self._connections.items() if opened.fileno() >= 0]
        caller = _caller(peer[0])
        if len(there) >= _MAX_CONNECTIONS or there.count(caller) >= _MAX_CONNECTIONS_OF_ONE:
            connection.close()
            raise ConnectionAbortedError
        self._connections[connection] = caller
        return connection, peer


def _caller(address: str) -> str:
    """The caller that an address belongs to."""
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], _NETWORK_BITS), strict=False))
    except ValueError:
        return address


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for all addresses of a host, with a common limit on connections."""
    connections: MutableMapping[socket.socket, str] = weakref.WeakKeyDictionary()
    with contextlib.ExitStack() as opened:
        listeners: list[socket.socket] = []
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = opened.enter_context(_Listener(family, connections))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listeners.append(listener)
        opened.pop_all()
    return listeners
