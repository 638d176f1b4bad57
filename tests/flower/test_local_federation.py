"""Local federations without processes: records, refusals, what logs say."""

import shutil
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower import local_federation
from fedblade.flower._record import FederationRecord, ProcessRecord, read_record, write_record
from fedblade.flower.app_folder import AppFolder, find_app
from fedblade.flower.digests import app_digest
from fedblade.flower.federation_status import status_of
from fedblade.flower.new_app import make_app
from fedblade.flower.node_folder import NodeFolder, read_settings


@pytest.fixture
def app(tmp_path):
    make_app(tmp_path / "app", None, {"num_clients": 7, "clients_per_round": 7})
    app = find_app(tmp_path / "app")
    app.local.mkdir()
    return app


def recorded(*nodes: ProcessRecord) -> FederationRecord:
    return FederationRecord(True, ProcessRecord(1), list(nodes))


@given(st.integers(1, 60), st.data())
def test_every_client_has_one_node(clients, data):
    nodes = data.draw(st.integers(1, clients))
    shared = [
        [int(client) for client in each.split(",")] for each in local_federation._clients_of_nodes(clients, nodes)
    ]
    assert sorted(client for each in shared for client in each) == list(range(clients))
    assert len(shared) == nodes
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_nodes_are_as_many_as_clients_up_to_four():
    assert local_federation._clients_of_nodes(3, None) == ["0", "1", "2"]
    assert local_federation._clients_of_nodes(10, None) == ["0,4,8", "1,5,9", "2,6", "3,7"]


def test_more_nodes_than_clients_are_refused():
    with pytest.raises(Misconfigured, match=r"--nodes 4 is more than there are clients \(3\)"):
        local_federation._clients_of_nodes(3, 4)


def test_a_folder_without_an_app_is_refused(tmp_path):
    with pytest.raises(Misconfigured, match=r"holds no Flower app.* fedblade flower init "):
        find_app(tmp_path)


def test_what_is_not_up_is_said(app):
    with pytest.raises(Misconfigured, match=r"is not up\. Start it: fedblade flower up "):
        local_federation.require_up(app)
    found = status_of(app)
    assert not found.ready
    assert "not up" in found.problem
    assert local_federation.down(app) is False


def test_a_deployed_federation_is_started_as_it_was_before(app):
    app.local.mkdir(exist_ok=True)
    app.service.write_text("{}")
    with pytest.raises(Misconfigured, match=r"Start it: fedblade flower serve .* with the --host, --port and --certs"):
        local_federation.require_up(app)
    assert "fedblade flower serve" in status_of(app).problem


def test_a_record_of_processes_that_are_gone_is_not_up(app):
    write_record(app, FederationRecord(True, ProcessRecord(1, pid=1), [ProcessRecord(2, "0", pid=1)], "started"))
    with pytest.raises(Misconfigured, match="is not up"):
        local_federation.require_up(app)
    assert not status_of(app).ready
    local_federation.down(app)
    assert not app.record.exists()


def test_records_are_read_as_written(app):
    assert read_record(app) is None
    record = recorded(ProcessRecord(3, "0,2", restarts=2), ProcessRecord(4, "1"))
    write_record(app, record)
    assert read_record(app) == record


@pytest.mark.parametrize("content", ["{", "[]", '{"nodes": 1}', "{}"])
def test_a_torn_record_says_what_to_do(app, content):
    app.record.write_text(content)
    with pytest.raises(RunFailed, match="fedblade flower down"):
        read_record(app)


def test_a_torn_configuration_is_named(app):
    (app.path / "fedblade.toml").write_text("[federation")
    with pytest.raises(Misconfigured, match="not valid TOML"):
        local_federation.up(app, 2, secure=True, note=print)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('federation = "x"', "federation"),
        ("flower = 3", r"flower = 3 is not a table; expected keys under \[flower\]"),
    ],
)
def test_a_configuration_that_no_local_federation_can_have_is_refused_before_anything_is_written(app, content, said):
    (app.path / "fedblade.toml").write_text(content)
    with pytest.raises(Misconfigured, match=said):
        local_federation.up(app, 2, secure=True, note=print)
    assert not list(app.local.iterdir())


def test_nodes_of_a_local_federation_have_no_data_of_their_own(tmp_path):
    make_app(tmp_path / "app", None, {"flower.data": "nodes", "flower.num_classes": 10})
    app = find_app(tmp_path / "app")
    said = r'nodes of a local federation have no data.*flower.data = "shares".*flower join --data'
    with pytest.raises(Misconfigured, match=said):
        local_federation.up(app, 2, secure=True, note=print)
    assert not app.local.exists()


def test_how_many_clients_there_are_is_read_from_the_app(app):
    assert local_federation._num_clients(app) == 7


def test_nodes_get_their_settings_a_key_of_their_own_and_the_app_s_pin(app):
    spaced = AppFolder(app.path.with_name("my app 'x'"))
    shutil.copytree(app.path, spaced.path)
    local_federation._write_files(spaced, recorded(ProcessRecord(3, "0,2"), ProcessRecord(4, "1")))
    node, other = NodeFolder(spaced.node(1)), NodeFolder(spaced.node(2))
    found = read_settings(node)
    assert (found.clients, found.coordinator, found.insecure) == ("0,2", "127.0.0.1:0", False)
    assert found.pin == app_digest(app) == read_settings(other).pin
    assert node.key.read_bytes() != other.key.read_bytes()
    assert stat.S_IMODE(node.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(node.key.stat().st_mode) == 0o600


def test_old_keys_logs_and_databases_are_removed(app):
    local_federation._write_files(app, recorded(ProcessRecord(3, "0")))
    key = NodeFolder(app.node(1)).key.read_bytes()
    app.logs.mkdir()
    for left in (app.database, app.local / "state.db-wal", app.logs / "node-1.log"):
        left.write_text("old")
    local_federation._write_files(app, recorded(ProcessRecord(3, "0"), ProcessRecord(4, "1")))
    assert NodeFolder(app.node(1)).key.read_bytes() != key
    assert NodeFolder(app.node(2)).public_key.is_file()
    assert not list(app.local.glob("state.db*"))
    assert not app.logs.exists()


def test_the_last_error_of_a_log_is_found(tmp_path):
    log = tmp_path / "log"
    assert local_federation.last_error(log) == ""
    log.write_text("one\ntwo\n\n")
    assert local_federation.last_error(log) == "two"
    log.write_text("one\n\x1b[91mERROR \x1b[0m:   the key is unknown\nbye\n")
    assert local_federation.last_error(log) == "ERROR :   the key is unknown"
    log.write_text("ERROR: Exit Code: 305\nNo connection.\n[code: 2004] Refused.\nSee there.\n")
    assert local_federation.last_error(log) == "No connection. [code: 2004] Refused."
    log.write_text("ERROR: Exit Code: 305\n")
    assert local_federation.last_error(log) == "ERROR: Exit Code: 305"
