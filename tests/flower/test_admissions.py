"""Keys are admitted for clients and revoked; a client keeps its number when it gets a new key."""

import json
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("flwr")
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower import _processes, admissions, certificates
from fedblade.flower._flwr_internals.database import known_nodes
from fedblade.flower._public_keys import read_public_key
from fedblade.flower._superlink import SuperLink, write_connection
from fedblade.flower.admissions import CurrentAdmissions, admit, catch_up, revoke, valid_admissions
from fedblade.flower.app_folder import AppFolder


@pytest.fixture
def app(tmp_path):
    app = AppFolder(tmp_path / "app")
    app.local.mkdir(parents=True)
    yield app
    _processes.end_all(app, 5.0)


@pytest.fixture
def keys(tmp_path):
    for number in (1, 2, 3):
        certificates.write_node_key(tmp_path / f"node-{number}")
    return [tmp_path / f"node-{number}.pub" for number in (1, 2, 3)]


@pytest.fixture
def superlink_process(app):
    """Starts and ends a SuperLink with a database of its own, and gives the commands for it."""

    @contextmanager
    def started():
        port = _processes.free_ports(1)[0]
        write_connection(app, f"127.0.0.1:{port}", None)
        arguments = [_processes.command("flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port)]
        process = _processes.start(app, [*arguments, "--database", str(app.database)], "superlink.log", app.home)
        deadline = time.monotonic() + 60
        while not _processes.is_open(port):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with SuperLink(app) as superlink:
            yield superlink
        _processes.end(app, [process.pid], 10.0)
        process.wait()
        # Flower's SuperLink has started a process that ends a moment later.
        _processes.end_all(app, 10.0)

    return started


@pytest.fixture
def superlink(superlink_process):
    """A SuperLink that is up."""
    with superlink_process() as superlink:
        yield superlink


def store(app: AppFolder, *admissions: dict[str, object]) -> None:
    """Write the file of admissions."""
    rows = [{"admitted_at": "2026-11-01T00:00:00+00:00", "revoked_at": None, **each} for each in admissions]
    app.admissions.write_text(json.dumps({"format": 1, "admissions": rows}))


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_the_fingerprint_is_the_one_that_ssh_shows(keys):
    key = keys[0]
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True, check=True).stdout
    assert read_public_key(key).fingerprint == shown.split()[1]


@pytest.mark.thorough
def test_a_client_gets_a_new_key_and_keeps_its_number(app, keys, superlink):
    first = admit(app, keys[0], [0, 2])
    assert admit(app, keys[0], [0, 2]) == first
    second = admit(app, keys[1], [1])
    may_speak_for = CurrentAdmissions(app).clients_of
    assert may_speak_for(int(first.node_id)) == (0, 2)
    assert may_speak_for(int(second.node_id)) == (1,)
    assert may_speak_for(7) == ()
    with pytest.raises(Misconfigured, match=r"client 0 already has the key .*revoke it first: .*--client 0"):
        admit(app, keys[2], [0])
    revoke(app, 2)
    assert may_speak_for(int(first.node_id)) == ()
    assert superlink.nodes()[first.node_id] == "unregistered"
    with pytest.raises(Misconfigured, match=r"was revoked .* Flower takes no key twice"):
        admit(app, keys[0], [0, 2])
    again = admit(app, keys[2], [0, 2])
    assert again.node_id != first.node_id
    assert may_speak_for(int(again.node_id)) == (0, 2)
    assert valid_admissions(app) == [second, again]
    assert {node.node_id for node in known_nodes(app.database)} == {second.node_id, again.node_id}
    assert not any(node.is_online for node in known_nodes(app.database))


@pytest.mark.thorough
def test_what_was_cut_short_is_repeated(app, keys, superlink):
    """The SuperLink has the key, or has given it up, and the file of admissions does not say so yet."""
    node_id = superlink.register(keys[0])
    assert admit(app, keys[0], [0]).node_id == node_id
    superlink.unregister(node_id)
    assert revoke(app, 0).revoked_at is not None
    superlink.unregister(superlink.register(keys[1]))
    with pytest.raises(RunFailed, match="already in use"):
        admit(app, keys[1], [0])


@pytest.mark.thorough
def test_what_was_changed_while_the_coordinator_was_down_takes_effect_at_its_start(app, keys, superlink_process):
    """A revoked key, a new key, and a key that Flower does not take again."""
    told = []
    with superlink_process() as superlink:
        first = admit(app, keys[0], [0])
        superlink.unregister(superlink.register(keys[2]))
    revoke(app, 0)
    assert not CurrentAdmissions(app).has_key(read_public_key(keys[0]).pem)
    pending = admit(app, keys[1], [0])
    assert (pending.node_id, admit(app, keys[1], [0])) == ("", pending)
    admit(app, keys[2], [1])
    assert CurrentAdmissions(app).clients_of(int(first.node_id)) == ()
    with superlink_process() as superlink:
        catch_up(app, told.append)
        assert superlink.nodes()[first.node_id] == "unregistered"
        (node,) = known_nodes(app.database)
        assert node.public_key == read_public_key(keys[1]).pem
        assert CurrentAdmissions(app).clients_of(int(node.node_id)) == (0,)
    (refused,) = told
    assert refused.startswith(f"the key {read_public_key(keys[2]).fingerprint} of client(s) [1] is not admitted: ")
    assert not list(app.local.glob("*.pub"))


@pytest.mark.thorough
def test_a_key_is_revoked_even_if_the_superlink_cannot_be_told(app, keys, monkeypatch):
    admit(app, keys[0], [0])
    write_connection(app, f"127.0.0.1:{_processes.free_ports(1)[0]}", None)
    monkeypatch.setattr(admissions, "coordinator_is_up", lambda _: True)
    with pytest.raises(RunFailed, match=r"is revoked, and its node is refused .* when the coordinator starts again"):
        revoke(app, 0)
    assert not CurrentAdmissions(app).has_key(read_public_key(keys[0]).pem)


def test_without_a_file_no_admissions_are_kept(app):
    assert valid_admissions(app) is None
    assert CurrentAdmissions(app).clients_of(7) is None


def test_a_key_is_admitted_for_the_same_clients_only(app, keys):
    fingerprint = read_public_key(keys[0]).fingerprint
    store(app, {"fingerprint": fingerprint, "node_id": "7", "clients": [0, 2]})
    assert admit(app, keys[0], [0, 2]).node_id == "7"
    with pytest.raises(Misconfigured, match=r"is admitted for client\(s\) \[0, 2\], not for \[1\]"):
        admit(app, keys[0], [1])
    with pytest.raises(Misconfigured, match=r"no key is admitted for client 1; there are keys for \[0, 2\]"):
        revoke(app, 1)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}', '{"format": 1, "admissions": [{"clients": [0]}]}'])
def test_a_damaged_file_lets_nobody_in(app, content):
    app.admissions.write_text(content)
    with pytest.raises(RunFailed, match=r"admissions\.json' cannot be read: .* Restore it from the backup"):
        CurrentAdmissions(app).clients_of(7)


def test_what_is_no_public_key_is_refused(app, keys, tmp_path):
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    (tmp_path / "other.pub").write_bytes(other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    (tmp_path / "text").write_text("ecdsa-sha2-nistp384 nothing")
    for path, said in (
        (keys[0].with_suffix(""), "is a private key, which must never leave its node"),
        (tmp_path / "other.pub", "is no key for an elliptic curve"),
        (tmp_path / "text", "is no public key"),
        (tmp_path / "nowhere", "cannot be read"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(Misconfigured, match=said):
            admit(app, path, [0])
