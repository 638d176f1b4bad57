"""A node's folder: its key, its settings and its data, and what is wrong with them in one sentence."""

import stat
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import Misconfigured
from fedblade.flower import certificates
from fedblade.flower._public_keys import read_public_key
from fedblade.flower.joining import data_source, join
from fedblade.flower.node_folder import NodeFolder, NodeSettings, read_settings

PIN = "ab" * 32


@pytest.fixture
def authority(tmp_path):
    certificates.make_certificates(tmp_path / "certs")
    return tmp_path / "certs" / "ca.crt"


def test_a_node_makes_a_key_that_only_its_owner_reads(tmp_path, authority):
    folder = NodeFolder(tmp_path / "node")
    joined = join(folder, NodeSettings("host:8443", "0,3", PIN), authority)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.key.stat().st_mode) == 0o600
    assert joined.public_key == folder.public_key
    assert joined.fingerprint == read_public_key(folder.public_key).fingerprint
    assert folder.authority.read_bytes() == authority.read_bytes()
    assert read_settings(folder) == NodeSettings("host:8443", "0,3", PIN)
    with pytest.raises(Misconfigured, match=r"already holds a node \(node.key\)"):
        join(folder, NodeSettings("host:8443", "1", PIN), authority)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (NodeSettings("host", "0", PIN), "--coordinator host is no address"),
        (NodeSettings("host:8443", "first", PIN), "clients = 'first'; expected the numbers of clients"),
        (NodeSettings("host:8443", "0", "abc"), "'abc', which is not a SHA-256 digest"),
        (NodeSettings("host:8443", "0", PIN, ["ABC"]), "'ABC', which is not a SHA-256 digest"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, authority, settings, said):
    with pytest.raises(Misconfigured, match=said):
        join(NodeFolder(tmp_path / "node"), settings, authority)
    assert not (tmp_path / "node").exists()


def test_what_is_no_certificate_is_refused(tmp_path, authority):
    with pytest.raises(Misconfigured, match="is no certificate in PEM format"):
        join(NodeFolder(tmp_path / "node"), NodeSettings("host:8443", "0", PIN), authority.with_name("ca.key"))
    with pytest.raises(Misconfigured, match=r"--ca: '.*gone.crt' does not exist"):
        join(NodeFolder(tmp_path / "node"), NodeSettings("host:8443", "0", PIN), authority.with_name("gone.crt"))


def test_data_are_named_by_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("own.npz", "ward.py", "wards/one.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert data_source("own.npz") == str(tmp_path / "own.npz")
    Path("ward").mkdir()
    with pytest.raises(Misconfigured, match="'ward' has no file 'train'; expected"):
        data_source("ward")
    for name in ("train.csv", "test.csv"):
        (Path("ward") / name).touch()
    assert data_source("ward") == data_source("ward/") == str(tmp_path / "ward")
    assert data_source("ward:samples") == data_source("ward.py:samples") == f"{tmp_path / 'ward.py'}:samples"
    assert data_source("wards.one:samples") == f"{tmp_path / 'wards' / 'one.py'}:samples"
    assert data_source("json.decoder:samples") == "json.decoder:samples"
    for wrong, said in (
        ("gone.npz", r"'gone.npz' does not exist"), ("gone.py:samples", "'gone.py' does not exist"),
        ("gone:samples", "nor an installed module 'gone'"), ("samples", "neither an .npz or"),
        ("ward:not a name", "neither an .npz or"),
    ):  # fmt: skip
        with pytest.raises(Misconfigured, match=said):
            data_source(wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("coordinator = ", "is not valid TOML"),
        ("colour = 1", "unknown key 'colour'; expected coordinator, clients"),
        ("clients = 0", "clients = 0; expected a str"),
        ('clients = "0"', "has no 'coordinator'"),
        ('coordinator = "h:1"\nclients = "0"\npin = "1"', "'1', which is not a SHA-256 digest"),
        (f'coordinator = "h:1"\nclients = "0"\npin = "{PIN}"\nallow = [3]', "3, which is not a SHA-256 digest"),
    ],
)
def test_a_wrong_settings_file_is_explained(tmp_path, content, said):
    folder = NodeFolder(tmp_path)
    with pytest.raises(Misconfigured, match="is not the folder of a node"):
        read_settings(folder)
    folder.settings.write_text(content)
    with pytest.raises(Misconfigured, match=said):
        read_settings(folder)
