"""Makes and renews the certificates of a federation, and makes the keys by which the SuperLink knows its nodes.

The authority outlives the server's certificate: nodes keep the authority's certificate for years, and the server gets
a new certificate every year without a change on any node.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_atomic
from fedblade.flower._x509 import (
    Authority,
    Certificate,
    PrivateKey,
    alternative_names,
    days_until,
    is_signed_by,
    load_certificate,
    load_key,
    names_of,
    new_authority,
    new_key,
    node_key_pair,
    pem,
    server_certificate,
)

CA_CERTIFICATE, CA_KEY, SERVER_CERTIFICATE, SERVER_KEY = _FILES = ("ca.crt", "ca.key", "server.crt", "server.key")
AUTHORITY_DAYS = 3650
"""How long the certificate of an authority is valid: ten years."""
WARNING_DAYS = 30
"""How many days before its end a certificate is warned about."""
_PRIVATE, _PUBLIC = 0o600, 0o644
_WHERE_IT_IS = {
    CA_CERTIFICATE: "Copy it from any node: all nodes have it.",
    CA_KEY: "It is kept offline, because its owner can pose as the server; bring it here, and take it away again after "
    "the renewal.",
    SERVER_CERTIFICATE: "Make a new one: give --renew and what nodes connect to (--host).",
    SERVER_KEY: "Make a new one: give --renew.",
}


def make_certificates(folder: Path, hosts: Sequence[str] = (), days: int = 365) -> None:
    """Write an authority and a server certificate for `hosts` and this machine; replace no file.

    The server's certificate is valid for `days`, the authority's for ten years.
    """
    existing = [name for name in _FILES if (folder / name).exists()]
    if existing:
        raise Misconfigured(
            f"'{folder}' already holds {', '.join(existing)}, and keys in use are not replaced. Choose another folder, "
            f"or renew the server's certificate with --renew."
        )
    _check_days(days, AUTHORITY_DAYS)
    subject_names = alternative_names(hosts)
    authority, server_key = new_authority(AUTHORITY_DAYS), new_key()
    server = server_certificate(server_key, authority, subject_names, days)
    _make_folder(folder)
    _write(folder / CA_CERTIFICATE, pem(authority.certificate), _PUBLIC)
    _write(folder / CA_KEY, pem(authority.key), _PRIVATE)
    _write(folder / SERVER_CERTIFICATE, pem(server), _PUBLIC)
    _write(folder / SERVER_KEY, pem(server_key), _PRIVATE)


def renew_server_certificate(folder: Path, hosts: Sequence[str] = (), days: int = 365) -> None:
    """Replace the server's key and certificate; the authority signs the new one, so that nodes need no change.

    Without `hosts`, the new certificate lists the names of the old one. A renewal that is interrupted is repeated.
    """
    authority = _read_authority(folder)
    _check_days(days, int(days_until(authority.certificate.not_valid_after_utc)))
    names = alternative_names(hosts) if hosts else names_of(_read_certificate(folder / SERVER_CERTIFICATE))
    key = new_key()
    certificate = server_certificate(key, authority, names, days)
    # The certificate comes last, because the next renewal takes the names from it.
    _replace(folder / SERVER_KEY, pem(key), _PRIVATE)
    _replace(folder / SERVER_CERTIFICATE, pem(certificate), _PUBLIC)


def check_server_files(folder: Path) -> None:
    """Refuse a folder whose certificates cannot serve: missing or unreadable files, a wrong key, a wrong authority."""
    authority = _read_certificate(folder / CA_CERTIFICATE)
    server, key = _read_certificate(folder / SERVER_CERTIFICATE), _read_key(folder / SERVER_KEY)
    if server.public_key() != key.public_key():
        raise Misconfigured(
            f"'{folder / SERVER_KEY}' is not the key of {SERVER_CERTIFICATE} beside it. Make both anew: "
            f"{_renewal(folder)}"
        )
    if not is_signed_by(server, authority):
        raise Misconfigured(
            f"'{folder / SERVER_CERTIFICATE}' was not signed by the authority of {CA_CERTIFICATE} beside it, which "
            f"nodes trust. Make it anew: {_renewal(folder)}"
        )


def days_left(folder: Path, name: str) -> float:
    """Days until a certificate ends, by its file name in the folder; negative if it has ended."""
    return days_until(_read_certificate(folder / name).not_valid_after_utc)


def expiry_warnings(folder: Path) -> list[str]:
    """A sentence for each certificate that has ended or ends within `WARNING_DAYS` days, with what to do."""
    remedies = {
        SERVER_CERTIFICATE: f"Pause the run and renew it: {_renewal(folder)}",
        CA_CERTIFICATE: "Make a new authority in a new folder with `fedblade flower certs`, and give its ca.crt to all "
        "nodes.",
    }
    sentences = []
    for name, remedy in remedies.items():
        left = days_left(folder, name)
        if left < WARNING_DAYS:
            ends = f"ends in {left:.0f} days" if left > 0 else "has ended"
            sentences.append(f"the certificate {name} {ends}. {remedy}")
    return sentences


def write_node_key(path: Path) -> None:
    """Write a private key and its public key: ECDSA over P-384, in the format of OpenSSH."""
    private, public = node_key_pair()
    _write(path.with_name(f"{path.name}.pub"), public, _PUBLIC)
    _write(path, private, _PRIVATE)


def _check_days(days: int, most: int) -> None:
    if 0 < days <= most:
        return
    if most < 1:
        raise Misconfigured(
            f"the authority's certificate ({CA_CERTIFICATE}) has ended. Make a new authority in a new folder, and give "
            f"its {CA_CERTIFICATE} to all nodes."
        )
    raise Misconfigured(
        f"--days {days} is not between 1 and {most}, the days that the authority's certificate is valid. Give how long "
        f"the server's certificate is valid."
    )


def _read_authority(folder: Path) -> Authority:
    certificate, key = _read_certificate(folder / CA_CERTIFICATE), _read_key(folder / CA_KEY)
    if certificate.public_key() != key.public_key():
        raise Misconfigured(
            f"'{folder / CA_KEY}' is not the key of {CA_CERTIFICATE} beside it. Bring the two files that were made "
            f"together."
        )
    return Authority(certificate, key)


def _read_certificate(path: Path) -> Certificate:
    certificate = load_certificate(_read(path))
    if certificate is None:
        raise Misconfigured(f"'{path}' is no certificate in PEM format. {_WHERE_IT_IS[path.name]}")
    return certificate


def _read_key(path: Path) -> PrivateKey:
    key = load_key(_read(path))
    if key is None:
        raise Misconfigured(
            f"'{path}' is no private key for an elliptic curve in PEM format without a password. "
            f"{_WHERE_IT_IS[path.name]}"
        )
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Misconfigured(f"'{path}' is missing. {_WHERE_IT_IS[path.name]}") from None
    except OSError as error:
        raise Misconfigured(f"'{path}' cannot be read: {error.strerror}. Check its permissions.") from error


def _renewal(folder: Path) -> str:
    return f"fedblade flower certs {shlex.quote(str(folder))} --renew"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"cannot make the folder '{folder}': {error.strerror}. Choose another one.") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file whose mode is set from the start, so that nobody else can read it in between."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as a whole; a reader sees the old or the new content."""
    try:
        write_atomic(path, content, mode)
    except OSError as error:
        raise Misconfigured(f"cannot write '{path}': {error.strerror}. Check the permissions of its folder.") from error
