"""Keeps other users of this machine away from a server that listens on loopback.

Every user of a machine can connect to its loopback address, and some of Flower's calls ask for no proof of identity.
Linux knows which user opened the other end of a local connection, so the server asks Linux, and clients need nothing.

Flower's web server believes every caller of this machine that says to be a proxy: a header then names the client in
place of the connection. A caller could name a connection of this user, which everybody can see, so a request with such
a header is refused.
"""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Any

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""A connection in another state may have no owner any more, and Linux then shows root as its owner."""
_LOCAL, _REMOTE, _STATE, _USER = 1, 2, 3, 7
_OF_PROXIES = (b"forwarded", b"x-forwarded-")
"""What the names of headers begin with by which a proxy says who the client is."""
_TEXT = b"only the user who runs this server, and root, may use this port.\n"


class OwnUserOnly:
    """An ASGI app that passes on the requests of this user and of root, and refuses all others with status 403."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or start and end with the server."""
        if scope["type"] == "lifespan" or (
            not _is_forwarded(scope) and _is_own(scope.get("client"), scope.get("server"))
        ):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": _TEXT})


def _is_forwarded(scope: Any) -> bool:
    """Whether a request says that it comes from a proxy; the client in the scope may then be made up."""
    return any(name.lower().startswith(_OF_PROXIES) for name, _ in scope.get("headers", ()))


def _is_own(client: tuple[str, int] | None, server: tuple[str, int] | None) -> bool:
    """Whether this user or root opened the connection."""
    if client is None or server is None:
        return False
    return owner_of(client, server) in (0, os.geteuid())


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The id of the user who opened a connection of this machine; None if there is no such connection."""
    try:
        ends = {(_hexadecimal(*client, mapped), _hexadecimal(*server, mapped)) for mapped in (False, True)}
    except ValueError:
        return None
    for table in _TABLES:
        if not table.is_file():
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if (fields[_LOCAL], fields[_REMOTE]) in ends and fields[_STATE] == _ESTABLISHED:
                return int(fields[_USER])
    return None


def _hexadecimal(host: str, port: int, mapped: bool) -> str:
    """An address as Linux writes it; `mapped` is an IPv4 address of a socket for IPv6."""
    address = ipaddress.ip_address(host)
    if mapped and address.version == 4:
        address = ipaddress.IPv6Address(f"::ffff:{host}")
    raw = address.packed
    words = [int.from_bytes(raw[start : start + 4], sys.byteorder) for start in range(0, len(raw), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
