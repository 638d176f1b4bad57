"""What is read from the SuperLink's database, and what is thrown away between its runs."""

import sqlite3

import pytest

pytest.importorskip("flwr")
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedblade.core.errors import RunFailed
from fedblade.flower._flwr_internals.database import drop_messages, known_nodes
from support.flower_logging import logging_kept

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own


@pytest.fixture(autouse=True)
def _logging():
    with logging_kept():
        yield


def opened(database) -> LinkState:
    """The database as Flower opens it."""
    path = str(database)
    return LinkStateFactory(path, NoOpFederationManager(), ObjectStoreFactory(path)).state()


@pytest.fixture
def database(tmp_path):
    return tmp_path / "state.db"


def test_nodes_are_those_of_flower(database):
    state = opened(database)
    nodes = [state.create_node("none", "none", key, 30.0) for key in (b"first", b"second", b"third")]
    state.activate_node(nodes[0], 30.0)
    state.delete_node("none", nodes[2])
    state._engine.dispose()
    found = {node.node_id: (node.public_key, node.is_online) for node in known_nodes(database)}
    assert found == {str(nodes[0]): (b"first", True), str(nodes[1]): (b"second", False)}


def test_messages_in_transit_are_thrown_away_and_nothing_else(database):
    state = opened(database)
    node = state.create_node("none", "none", b"key", 30.0)
    state._engine.dispose()
    large = b"x" * 3_000_000
    with sqlite3.connect(database) as connection:
        for table in ("message_ins", "message_res"):
            connection.execute(f"INSERT INTO {table} (message_id, content) VALUES ('m', ?)", (large,))
        connection.execute("INSERT INTO objects (object_id, content) VALUES ('o', ?)", (large,))
        connection.execute("INSERT INTO run_objects (run_id, object_id) VALUES (1, 'o')")
        connection.execute("INSERT INTO object_children (parent_id, child_id) VALUES ('o', 'o')")
        connection.execute("INSERT INTO object_push_sessions VALUES ('s', 1, '2026-01-01', 1)")
        connection.execute("INSERT INTO object_push_session_roots VALUES ('s', 'o')")
        connection.execute("INSERT INTO object_push_session_pending VALUES ('s', 'o')")
    connection.close()
    assert database.stat().st_size > 9_000_000
    drop_messages(database)
    assert sum(path.stat().st_size for path in database.parent.iterdir()) < 1_000_000
    assert [node.node_id for node in known_nodes(database)] == [str(node)]
    again = opened(database)
    assert [known.node_id for known in again.get_node_info()] == [node]
    assert len(again.object_store) == 0
    again._engine.dispose()


def test_there_need_be_no_database(database):
    drop_messages(database)
    assert not database.exists()


def test_a_database_that_is_none_is_named(database):
    database.write_bytes(b"nothing" * 500)
    for use in (known_nodes, drop_messages):
        with pytest.raises(RunFailed, match=r"state\.db' cannot be used: .* Restore it from the backup"):
            use(database)
