"""Certificates as TLS sees them, and keys as Flower reads them."""

import datetime
import socket
import ssl
import threading
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedblade.core.errors import Misconfigured
from fedblade.flower import certificates


def handshake(certs: Path, trusted: Path, name: str) -> None:
    """A TLS connection over loopback to a server that has the certificate of `certs`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certs / "server.crt", certs / "server.key")
    client = ssl.create_default_context(cafile=str(trusted / "ca.crt"))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                try:
                    with server.wrap_socket(connection, server_side=True) as wrapped:
                        wrapped.recv(1)
                except (ssl.SSLError, OSError):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listening.getsockname()) as raw,
                client.wrap_socket(raw, server_hostname=name) as wrapped,
            ):
                wrapped.send(b"x")
        finally:
            thread.join(5)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "certs"
    certificates.make_certificates(
        folder, hosts=["flower.example.org", "10.0.0.7", "::1", "localhost"], nodes=2, days=10
    )
    return folder


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "flower.example.org", "10.0.0.7", "::1"])
def test_the_server_is_trusted_under_its_names(certs, name):
    handshake(certs, certs, name)


def test_the_server_is_not_trusted_under_another_name(certs):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        handshake(certs, certs, "example.com")


def test_another_authority_is_not_trusted(certs, tmp_path):
    certificates.make_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certs, tmp_path / "other", "localhost")


def test_the_server_certificate_signs_no_other(certs):
    authority, server = (
        x509.load_pem_x509_certificate((certs / name).read_bytes()) for name in ("ca.crt", "server.crt")
    )
    server.verify_directly_issued_by(authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [each.dotted_string for each in usage] == ["1.3.6.1.5.5.7.3.1"]


def test_certificates_last_as_long_as_asked(certs):
    certificate = x509.load_pem_x509_certificate((certs / "server.crt").read_bytes())
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert 9.9 < left / datetime.timedelta(days=1) < 10.1


def test_private_keys_are_the_owners(certs):
    private = {"ca.key", "server.key", "node-1", "node-2"}
    assert {path.name for path in certs.iterdir() if path.stat().st_mode & 0o077 == 0} == private
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in map(certs.joinpath, private))


def test_flower_reads_the_node_keys(certs):
    for name in ("node-1", "node-2"):
        private = serialization.load_ssh_private_key((certs / name).read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert try_load_public_key(certs / f"{name}.pub") == public_key_to_bytes(private.public_key())
    assert (certs / "node-1").read_bytes() != (certs / "node-2").read_bytes()


def test_nothing_is_replaced(certs):
    before = {path.name: path.read_bytes() for path in certs.iterdir()}
    with pytest.raises(Misconfigured, match=r"already holds ca\.crt, ca\.key, server\.crt, server\.key …"):
        certificates.make_certificates(certs, nodes=3)
    assert {path.name: path.read_bytes() for path in certs.iterdir()} == before


def test_one_file_in_the_way_is_enough(tmp_path):
    (tmp_path / "node-2").write_text("mine")
    with pytest.raises(Misconfigured, match="already holds node-2, "):
        certificates.make_certificates(tmp_path, nodes=2)
    assert [path.name for path in tmp_path.iterdir()] == ["node-2"]


@pytest.mark.parametrize("host", ["https://flower.example.org", "host:8000", "", "two words"])
def test_a_host_that_is_none_is_refused_before_anything_is_written(tmp_path, host):
    with pytest.raises(Misconfigured, match="neither a host name nor an IP address"):
        certificates.make_certificates(tmp_path / "certs", hosts=[host])
    assert not (tmp_path / "certs").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot make the folder"):
        certificates.make_certificates(tmp_path / "file" / "certs")


@pytest.mark.parametrize("days", [0, 36501, 10_000_000, 10**12])
def test_certificates_for_longer_than_a_date_can_say_are_refused(tmp_path, days):
    with pytest.raises(Misconfigured, match=rf"--days {days} is not between 1 and 36500"):
        certificates.make_certificates(tmp_path / "certs", days=days)
    assert not (tmp_path / "certs").exists()
    certificates.make_certificates(tmp_path / "certs", days=36500)
