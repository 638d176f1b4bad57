"""Rehearsals without processes: plans, refusals, what logs say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")
from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.flower import _rehearsal, app_place, status_of
from fedblade.flower._place import Place
from fedblade.flower._record import Kept, Plan, PlannedNode, Record, read_plan, read_record, write_plan, write_record


@pytest.fixture
def place(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app]\npublisher = "me"\n')
    found = app_place(tmp_path)
    found.own.mkdir()
    return found


@given(st.integers(1, 60), st.data())
def test_every_client_has_one_node(clients, data):
    nodes = data.draw(st.integers(1, clients))
    shared = [[int(client) for client in each.split(",")] for each in _rehearsal._shared_out(clients, nodes)]
    assert sorted(client for each in shared for client in each) == list(range(clients))
    assert len(shared) == nodes
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_nodes_are_as_many_as_clients_up_to_four():
    assert _rehearsal._shared_out(3, None) == ["0", "1", "2"]
    assert _rehearsal._shared_out(10, None) == ["0,4,8", "1,5,9", "2,6", "3,7"]
    assert _rehearsal._shared_out(None, None) == ["0", "1"]


def test_more_nodes_than_clients_are_refused():
    with pytest.raises(Misconfigured, match=r"--nodes 4 is more than there are clients \(3\)"):
        _rehearsal._shared_out(3, 4)


@pytest.mark.parametrize("content", [None, "", "[tool.flwr]\n", "[project]\nname = 'x'\n"])
def test_a_folder_without_an_app_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(Misconfigured, match=r"holds no Flower app.* fedblade flower init "):
        app_place(tmp_path)


@pytest.mark.parametrize("content", ["[tool", "tool = 3\n"])
def test_a_torn_app_is_refused(tmp_path, content):
    (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(Misconfigured, match="cannot be read"):
        app_place(tmp_path)


def test_what_is_not_up_is_said(place):
    with pytest.raises(Misconfigured, match=r"is not up\. Start it: fedblade flower up "):
        _rehearsal.record_of(place)
    found = status_of(place)
    assert not found.ready
    assert "not up" in found.problem
    assert _rehearsal.down(place) is False


def test_a_record_of_processes_that_are_gone_is_not_up(place):
    write_record(place, Record(True, Kept(1, pid=1), [Kept(2, "0", pid=1)], "started"))
    with pytest.raises(Misconfigured, match="is not up"):
        _rehearsal.record_of(place)
    assert not status_of(place).ready
    _rehearsal.down(place)
    assert not place.state.exists()


def test_plans_and_records_are_read_as_written(place):
    plan = Plan(True, 1, (PlannedNode("0,2", 3), PlannedNode("1", 4)))
    write_plan(place, plan)
    assert read_plan(place) == plan
    assert read_record(place) is None
    record = Record.planned(plan)
    record.nodes[0].restarts = 2
    write_record(place, record)
    assert read_record(place) == record


@pytest.mark.parametrize("content", ["{", "[]", '{"nodes": 1}', "{}"])
def test_a_torn_record_says_what_to_do(place, content):
    place.state.write_text(content)
    with pytest.raises(RunFailed, match="fedblade flower down"):
        read_record(place)


def test_a_torn_configuration_is_named(place):
    (place.folder / "fedblade.toml").write_text("[federation")
    with pytest.raises(Misconfigured, match="not valid TOML"):
        _rehearsal.up(place, 2, secure=True, note=print)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            'federation = "x"',
            r"federation = 'x' in '.*fedblade.toml' is not a table; expected keys under \[federation\]",
        ),
        ("flower = 3", r"flower = 3 in '.*fedblade.toml' is not a table"),
        (
            '[flower]\ndata = "nodes"',
            r'nodes of a rehearsal have no data.*flower.data = "shares".*flower-supernode --node',
        ),
    ],
)
def test_a_configuration_that_no_rehearsal_can_have_is_refused_before_anything_is_written(place, content, said):
    (place.folder / "fedblade.toml").write_text(content)
    with pytest.raises(Misconfigured, match=said):
        _rehearsal.up(place, 2, secure=True, note=print)
    assert not list(place.own.iterdir())


def test_how_many_clients_there_are_is_read_from_the_app(place):
    assert _rehearsal._num_clients(_rehearsal._app_tables(place)) is None
    (place.folder / "fedblade.toml").write_text("[federation]\nnum_clients = 7\n[flower]\ndata = 'shares'\n")
    assert _rehearsal._num_clients(_rehearsal._app_tables(place)) == 7


@pytest.mark.parametrize("left", [["ca.crt"], ["ca.crt", "ca.key", "server.crt"], ["node-1.pub"]])
def test_certificates_that_were_left_half_made_are_made_again(place, left):
    _rehearsal._keys(place.certs, 1)
    for path in place.certs.iterdir():
        if path.name not in left:
            path.unlink()
    _rehearsal._keys(place.certs, 1)
    names = ["ca.crt", "ca.key", "node-1", "node-1.pub", "server.crt", "server.key"]
    assert sorted(path.name for path in place.certs.iterdir()) == names


def test_nodes_get_their_clients_and_places_from_files(place):
    spaced = Place(place.folder / "my app 'x'")
    spaced.folder.mkdir()
    _rehearsal._lay_out(spaced, Plan(True, 1, (PlannedNode("0,2", 3), PlannedNode("1", 4))))
    from flwr.common.config import parse_config_args

    found = parse_config_args([str(spaced.node(1) / "node.toml")])
    assert found == {"clients": "0,2", "state-dir": str(spaced.node(1) / "state")}


def test_keys_outlive_a_rehearsal_and_logs_do_not(place):
    plan = Plan(True, 1, (PlannedNode("0", 3),))
    _rehearsal._lay_out(place, plan)
    key = (place.certs / "node-1").read_bytes()
    place.logs.mkdir()
    for left in (place.database, place.own / "state.db-wal", place.logs / "node-1.log"):
        left.write_text("old")
    _rehearsal._lay_out(place, Plan(True, 1, (PlannedNode("0", 3), PlannedNode("1", 4))))
    assert (place.certs / "node-1").read_bytes() == key
    assert (place.certs / "node-2.pub").is_file()
    assert not list(place.own.glob("state.db*"))
    assert not place.logs.exists()


def test_certificates_about_to_expire_are_made_again(place):
    _rehearsal._certs.make_certs(place.certs, nodes=1, days=1)
    before = (place.certs / "ca.crt").read_bytes()
    _rehearsal._keys(place.certs, 1)
    assert (place.certs / "ca.crt").read_bytes() != before
    assert _rehearsal._certs.days_left(place.certs) > 300


def test_the_last_complaint_of_a_log_is_found(tmp_path):
    log = tmp_path / "log"
    assert _rehearsal.last_complaint(log) == ""
    log.write_text("one\ntwo\n\n")
    assert _rehearsal.last_complaint(log) == "two"
    log.write_text("one\n\x1b[91mERROR \x1b[0m:   the key is unknown\nbye\n")
    assert _rehearsal.last_complaint(log) == "ERROR :   the key is unknown"
    log.write_text("ERROR: Exit Code: 305\nNo connection.\n[code: 2004] Refused.\nSee there.\n")
    assert _rehearsal.last_complaint(log) == "No connection. [code: 2004] Refused."
    log.write_text("ERROR: Exit Code: 305\n")
    assert _rehearsal.last_complaint(log) == "ERROR: Exit Code: 305"
