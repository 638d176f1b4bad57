"""Public keys of nodes: files in the format of OpenSSH, and the fingerprints by which people compare keys."""

import base64
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedblade.core.errors import Misconfigured, MissingExtra

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
        load_ssh_public_key,
    )
except ImportError as error:
    raise MissingExtra("cryptography", "flower", "keys of nodes") from error

_MOST_BYTES = 10_000
_PRIVATE = b"PRIVATE KEY"


@dataclass(frozen=True)
class PublicKey:
    """A node's public key: its fingerprint, as `ssh-keygen -l` shows it, and the key in PEM format."""

    fingerprint: str
    pem: bytes


def read_public_key(path: Path) -> PublicKey:
    """The public key in a file; refuses anything else, private keys in particular."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise Misconfigured(
            f"'{path}' cannot be read: {error.strerror}. Give the public key that the node sent."
        ) from error
    if _PRIVATE in content:
        raise Misconfigured(
            f"'{path}' is a private key, which must never leave its node. Delete it here, let the node make a new key, "
            f"and give the file that ends in .pub."
        )
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Misconfigured(
            f"'{path}' is no public key in the format of OpenSSH. Give the node's .pub file."
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise Misconfigured(
            f"'{path}' is no key for an elliptic curve, and Flower takes no other. Let the node make its key with "
            f"`fedblade flower join`."
        )
    return PublicKey(_fingerprint(key), key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@functools.lru_cache(maxsize=1024)
def fingerprint_of(pem: bytes) -> str | None:
    """The fingerprint of a public key in PEM format; None if the bytes are no key for an elliptic curve."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return _fingerprint(key) if isinstance(key, ec.EllipticCurvePublicKey) else None


def _fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    digest = hashlib.sha256(base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]))
    return f"SHA256:{base64.b64encode(digest.digest()).decode().rstrip('=')}"
