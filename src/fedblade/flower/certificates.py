"""Makes a certificate authority, the server's certificate and the keys by which the SuperLink knows its nodes."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from fedblade.core.errors import Misconfigured, MissingExtra

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingExtra("cryptography", "flower", "making certificates") from error

CA_CERTIFICATE, CA_KEY, SERVER_CERTIFICATE, SERVER_KEY = _FILES = ("ca.crt", "ca.key", "server.crt", "server.key")
_LOCAL_HOSTS = ("localhost", "127.0.0.1")
_PRIVATE, _PUBLIC = 0o600, 0o644
_MAX_DAYS = 36500
_MAX_LISTED = 4


def node_key(number: int) -> str:
    """File of a node's private key, numbered from 1; the file of the public key has the ending `.pub`."""
    return f"node-{number}"


def make_certificates(folder: Path, hosts: Sequence[str] = (), nodes: int = 0, days: int = 365) -> list[Path]:
    """Write an authority, a server certificate for `hosts` and this machine, and `nodes` keys; replace no file."""
    names = list(_FILES)
    names += [name for number in range(1, nodes + 1) for name in (node_key(number), f"{node_key(number)}.pub")]
    existing = [name for name in names if (folder / name).exists()]
    if existing:
        more = " …" if len(existing) > _MAX_LISTED else ""
        raise Misconfigured(
            f"'{folder}' already holds {', '.join(existing[:_MAX_LISTED])}{more}, and keys in use are not replaced. "
            f"Choose another folder. Keys for more nodes may come from another folder too, because node keys do not "
            f"depend on the authority."
        )
    if not 0 < days <= _MAX_DAYS:
        raise Misconfigured(f"--days {days} is not between 1 and {_MAX_DAYS}. Give how long certificates are valid.")
    subject_names = _alternative_names(hosts)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _authority(authority_key, days)
    server = _server(server_key, authority, authority_key, subject_names, days)
    _make_folder(folder)
    _write(folder / CA_CERTIFICATE, authority.public_bytes(serialization.Encoding.PEM), _PUBLIC)
    _write(folder / CA_KEY, _pem(authority_key), _PRIVATE)
    _write(folder / SERVER_CERTIFICATE, server.public_bytes(serialization.Encoding.PEM), _PUBLIC)
    _write(folder / SERVER_KEY, _pem(server_key), _PRIVATE)
    for number in range(1, nodes + 1):
        _write_node_key(folder / node_key(number))
    return [folder / name for name in names]


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys((*_LOCAL_HOSTS, *hosts)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(_host_name(host))
    return x509.SubjectAlternativeName(names)


def _host_name(host: str) -> x509.DNSName:
    parts = host.removeprefix("*.").split(".")
    if not all(part.isascii() and part.replace("-", "").isalnum() for part in parts):
        raise Misconfigured(
            f"--host '{host}' is neither a host name nor an IP address. Give what nodes connect to, without a port, "
            f"such as --host flower.example.org."
        )
    return x509.DNSName(host)


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedblade federation authority")])
    public = key.public_key()
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, name, public, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    days: int,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedblade federation server")])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    # The certificate is valid from an hour ago, because the clocks of machines differ.
    begins = _now() - datetime.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(_now() + datetime.timedelta(days=days))
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_node_key(path: Path) -> None:
    """Write a private key and its public key: ECDSA over P-384, in the format of OpenSSH."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, unencrypted = serialization.Encoding, serialization.NoEncryption()
    private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, unencrypted)
    public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(path.with_name(f"{path.name}.pub"), public + b"\n", _PUBLIC)
    _write(path, private, _PRIVATE)


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
