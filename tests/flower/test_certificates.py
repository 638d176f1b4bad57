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
from fedblade.flower import _x509, certificates
from fedblade.flower._x509 import new_key, pem


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
    certificates.make_certificates(folder, hosts=["flower.example.org", "10.0.0.7", "::1", "localhost"], days=10)
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
    private = {"ca.key", "server.key"}
    assert {path.name for path in certs.iterdir() if path.stat().st_mode & 0o077 == 0} == private
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in map(certs.joinpath, private))


def test_flower_reads_the_node_keys(tmp_path):
    for name in ("node-1", "node-2"):
        certificates.write_node_key(tmp_path / name)
        private = serialization.load_ssh_private_key((tmp_path / name).read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert try_load_public_key(tmp_path / f"{name}.pub") == public_key_to_bytes(private.public_key())
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    assert (tmp_path / "node-1").read_bytes() != (tmp_path / "node-2").read_bytes()


def test_nothing_is_replaced(certs):
    before = {path.name: path.read_bytes() for path in certs.iterdir()}
    with pytest.raises(Misconfigured, match=r"already holds ca\.crt, ca\.key, server\.crt, server\.key, and"):
        certificates.make_certificates(certs)
    assert {path.name: path.read_bytes() for path in certs.iterdir()} == before


def test_one_file_in_the_way_is_enough(tmp_path):
    (tmp_path / "server.key").write_text("mine")
    with pytest.raises(Misconfigured, match=r"already holds server\.key, "):
        certificates.make_certificates(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["server.key"]


@pytest.mark.parametrize("host", ["https://flower.example.org", "host:8000", "", "two words"])
def test_a_host_that_is_none_is_refused_before_anything_is_written(tmp_path, host):
    with pytest.raises(Misconfigured, match="neither a host name nor an IP address"):
        certificates.make_certificates(tmp_path / "certs", hosts=[host])
    assert not (tmp_path / "certs").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot make the folder"):
        certificates.make_certificates(tmp_path / "file" / "certs")


@pytest.mark.parametrize("days", [0, 3651, 10_000_000, 10**12])
def test_the_server_certificate_does_not_outlive_the_authority(tmp_path, days):
    with pytest.raises(Misconfigured, match=rf"--days {days} is not between 1 and 3650"):
        certificates.make_certificates(tmp_path / "certs", days=days)
    assert not (tmp_path / "certs").exists()
    certificates.make_certificates(tmp_path / "certs", days=3650)


def test_the_authority_outlives_the_server_certificate(certs):
    assert 3649.9 < certificates.days_left(certs, "ca.crt") < 3650.1
    assert 9.9 < certificates.days_left(certs, "server.crt") < 10.1


@pytest.fixture
def old(tmp_path):
    """Certificates whose server certificate ends soon."""
    certificates.make_certificates(tmp_path / "old", hosts=["flower.example.org"], days=20)
    return tmp_path / "old"


def test_a_renewed_certificate_is_trusted_by_nodes_that_know_the_authority(old, tmp_path):
    node = tmp_path / "node"
    node.mkdir()
    (node / "ca.crt").write_bytes((old / "ca.crt").read_bytes())
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    certificates.renew_server_certificate(old)
    handshake(old, node, "flower.example.org")
    handshake(old, node, "localhost")
    assert 364.9 < certificates.days_left(old, "server.crt") < 365.1
    changed = {name for name, content in before.items() if (old / name).read_bytes() != content}
    assert changed == {"server.crt", "server.key"}
    assert {path.name for path in old.iterdir()} == set(before)
    assert (old / "server.key").stat().st_mode & 0o777 == 0o600


def test_a_renewal_can_change_the_names(old):
    certificates.renew_server_certificate(old, hosts=["other.example.org"], days=40)
    handshake(old, old, "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(old, old, "flower.example.org")


def test_an_interrupted_renewal_is_repeated(old):
    """The key is replaced first; the next renewal still finds the names in the old certificate."""
    certificates._replace(old / "server.key", pem(new_key()), 0o600)
    with pytest.raises(Misconfigured, match=r"is not the key of server\.crt .* --renew"):
        certificates.check_server_files(old)
    certificates.renew_server_certificate(old)
    certificates.check_server_files(old)
    handshake(old, old, "flower.example.org")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ca.key", r"ca\.key' is missing\. It is kept offline"),
        ("ca.crt", r"ca\.crt' is missing\. Copy it from any node"),
        ("server.crt", r"server\.crt' is missing\. Make a new one"),
    ],
)
def test_a_missing_file_is_named_with_where_it_is(old, name, said):
    (old / name).unlink()
    with pytest.raises(Misconfigured, match=said):
        certificates.renew_server_certificate(old)


def test_files_that_cannot_serve_are_refused(old, tmp_path):
    certificates.make_certificates(tmp_path / "other")
    certificates.check_server_files(old)
    mine = (old / "ca.key").read_bytes()
    (old / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(Misconfigured, match=r"is not the key of ca\.crt"):
        certificates.renew_server_certificate(old)
    (old / "ca.key").write_bytes(b"nothing")
    with pytest.raises(Misconfigured, match="is no private key"):
        certificates.renew_server_certificate(old)
    (old / "ca.key").write_bytes(mine)
    (old / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(Misconfigured, match="was not signed by the authority"):
        certificates.check_server_files(old)
    (old / "server.key").unlink()
    with pytest.raises(Misconfigured, match=r"server\.key' is missing"):
        certificates.check_server_files(old)


def test_the_end_of_a_certificate_is_warned_about(certs, tmp_path, monkeypatch):
    fresh = tmp_path / "fresh"
    certificates.make_certificates(fresh, days=31)
    assert certificates.expiry_warnings(fresh) == []
    (warning,) = certificates.expiry_warnings(certs)
    assert warning.startswith("the certificate server.crt ends in 10 days. Pause the run and renew it: fedblade flower")
    day = datetime.timedelta(days=1)
    later = datetime.datetime.now(datetime.UTC) + 3640 * day
    monkeypatch.setattr(_x509, "_now", lambda: later)
    assert [sentence.partition(". ")[0] for sentence in certificates.expiry_warnings(fresh)] == [
        "the certificate server.crt has ended",
        "the certificate ca.crt ends in 10 days",
    ]
    with pytest.raises(Misconfigured, match="--days 365 is not between 1 and 9"):
        certificates.renew_server_certificate(fresh)
    monkeypatch.setattr(_x509, "_now", lambda: later + 20 * day)
    with pytest.raises(Misconfigured, match=r"has ended\. Make a new authority"):
        certificates.renew_server_certificate(fresh)
