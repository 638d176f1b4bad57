"""The salted digest of a node's samples. The salt never leaves the node.

The coordinator compares salted digests and so sees that samples have changed. Without the salt the coordinator cannot
find out by trial which samples a node holds.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

from fedblade.core.errors import RunFailed
from fedblade.core.files import cannot_write, write_once

_SALT = "salt"
_BYTES = 32


def salted_digest(folder: Path, digest: str) -> str:
    """A digest, salted with the salt in a node's folder; a name of the salt stands before it.

    Two salted digests tell whether samples are the same only if they were made with the same salt.
    """
    salt = _salt(folder)
    name = hashlib.sha256(b"name of the salt" + salt).hexdigest()[:16]
    return f"{name}-{hmac.new(salt, digest.encode(), hashlib.sha256).hexdigest()}"


def _salt(folder: Path) -> bytes:
    """The salt of a node, drawn when it is first needed; only the node's user can read the file."""
    path = folder / _SALT
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_once(path, secrets.token_bytes(_BYTES), 0o600)
        salt = path.read_bytes()
    except OSError as error:
        raise cannot_write(path, error) from error
    if len(salt) != _BYTES:
        raise RunFailed(
            f"'{path}' has {len(salt)} bytes; expected {_BYTES}. Put the file back as it was. If that is not possible, "
            f"remove it: the node then draws a new salt, and changes of its samples before that are not seen."
        )
    return salt
