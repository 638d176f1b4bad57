"""X.509 certificates of a federation: what the authority's and the server's certificate say."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from fedblade.core.errors import Misconfigured, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingExtra("cryptography", "flower", "making certificates") from error

Certificate = x509.Certificate
PrivateKey = ec.EllipticCurvePrivateKey
_LOCAL_HOSTS = ("localhost", "127.0.0.1")
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority: the certificate that everybody trusts, and the private key that signs others."""

    certificate: Certificate
    key: PrivateKey


def new_key() -> PrivateKey:
    """A new private key for a certificate."""
    return ec.generate_private_key(ec.SECP256R1())


def new_authority(days: int) -> Authority:
    """A new authority whose certificate is valid for some days."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedblade federation authority")])
    key = new_key()
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
    certificate = (
        _builder(name, name, public, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def server_certificate(
    key: PrivateKey, authority: Authority, names: x509.SubjectAlternativeName, days: int
) -> Certificate:
    """A certificate for a server that is reached under `names`, signed by the authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedblade federation server")])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(subject, authority.certificate.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def alternative_names(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    """The names and addresses of a server as a certificate lists them; those of the own machine are added."""
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys((*_LOCAL_HOSTS, *hosts)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(_host_name(host))
    return x509.SubjectAlternativeName(names)


def names_of(certificate: Certificate) -> x509.SubjectAlternativeName:
    """The names and addresses that a server's certificate lists."""
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def days_until(end: datetime.datetime) -> float:
    """Days from now until a moment; negative if it is over."""
    return (end - _now()) / _DAY


def pem(part: Certificate | PrivateKey) -> bytes:
    """A certificate or a private key as the content of a file."""
    if isinstance(part, Certificate):
        return part.public_bytes(serialization.Encoding.PEM)
    return part.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_certificate(content: bytes) -> Certificate | None:
    """The certificate in the content of a file, None if there is none."""
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        return None


def load_key(content: bytes) -> PrivateKey | None:
    """The private key in the content of a file; None if there is none, or one of another kind, or with a password."""
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, PrivateKey) else None


def is_signed_by(certificate: Certificate, authority: Certificate) -> bool:
    """Whether an authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def node_key_pair() -> tuple[bytes, bytes]:
    """A new private key of a node and its public key: ECDSA over P-384, in the format of OpenSSH."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, unencrypted = serialization.Encoding, serialization.NoEncryption()
    private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, unencrypted)
    public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b"\n"


def _host_name(host: str) -> x509.DNSName:
    parts = host.removeprefix("*.").split(".")
    if not all(part.isascii() and part.replace("-", "").isalnum() for part in parts):
        raise Misconfigured(
            f"--host '{host}' is neither a host name nor an IP address. Give what nodes connect to, without a port, "
            f"such as --host flower.example.org."
        )
    return x509.DNSName(host)


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
