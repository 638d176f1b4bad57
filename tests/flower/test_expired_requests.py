"""Requests that nobody waits for any more do not pile up in the SuperLink's database."""

import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("flwr")
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory, sql_linkstate
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.runtime import runtime_handlers

from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower import _grid_transport
from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._messages import reply_message
from support.flower_logging import logging_kept

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own
MODEL = {"weight": torch.zeros(100_000)}


@pytest.fixture(autouse=True)
def _logging():
    with logging_kept():
        yield


class Handlers:
    """The Runtime API of a SuperLink, without HTTP."""

    def __init__(self, state, task):
        self._state, self._task = state, task

    def __getattr__(self, name):
        handler = {
            "PushMessages": runtime_handlers.push_messages,
            "PushObject": runtime_handlers.push_object,
            "PullMessages": runtime_handlers.pull_messages,
            "PullObject": runtime_handlers.pull_object,
            "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
        }[name]
        return lambda request: handler(request, self._state, self._task)


class Link(HttpGrid):
    """The grid of a run whose SuperLink is in this process, with one node that is online."""

    def __init__(self, database, monkeypatch):
        path = str(database)
        self.state = LinkStateFactory(path, NoOpFederationManager(), ObjectStoreFactory(path)).state()
        run_id = self.state.create_run("", "", "", {}, "@none/default", None, "none", "flwr-serverapp")
        for name, value in (("_run_id", run_id), ("_node_id", SUPERLINK_NODE_ID), ("_task_id", 1)):
            monkeypatch.setattr(TaskIdentity, name, value)
        super().__init__("127.0.0.1:1", insecure=True, token="none")
        self.set_run(self.state.get_run_info(run_ids=[run_id])[0])
        self.handlers = Handlers(self.state, SimpleNamespace(run_id=run_id))
        self.member = self.state.create_node("none", "none", b"key", 30.0)
        self.state.activate_node(self.member, 30.0)

    _runtime_client = property(lambda self: self.handlers)

    def get_nodes(self):
        return [SimpleNamespace(node_id=self.member, last_activated_at="now")]

    def answer(self):
        """The node fetches its oldest request and answers it."""
        (message,) = self.state.get_message_ins(self.member, limit=1)
        reply = reply_message(message, {}, MODEL)
        reply.metadata.__dict__["_src_node_id"] = self.member
        reply.metadata.__dict__["_message_id"] = reply.object_id
        session = self.state.start_session(self.run.run_id)
        stored, missing = self.state.store_message_and_object_tree(reply, get_object_tree(reply), session)
        for key, each in get_all_nested_objects(reply).items():
            if key in missing:
                self.state.store_object(self.run.run_id, session, key, each.deflate())
        return stored


@pytest.fixture
def link(tmp_path, monkeypatch):
    link = Link(tmp_path / "state.db", monkeypatch)
    yield link
    link.state._engine.dispose()
    link.state.object_store._engine.dispose()


def kept(link, database):
    """How many messages, and how many bytes of arrays, the database holds."""
    with sqlite3.connect(database) as connection:
        messages = connection.execute(
            "SELECT (SELECT count(*) FROM message_ins) + (SELECT count(*) FROM message_res)"
        ).fetchone()[0]
        size = connection.execute("SELECT coalesce(sum(length(content)), 0) FROM objects").fetchone()[0]
    connection.close()
    return messages, size


def test_what_nobody_waits_for_is_thrown_away(link, tmp_path, monkeypatch):
    database, clock = tmp_path / "state.db", [0.0]
    monkeypatch.setattr(_grid_transport.time, "monotonic", lambda: clock[0])
    transport = GridTransport(link)

    def send():
        (sent,) = transport.send([Request("train", link.member, {"at": clock[0]}, MODEL)], 10.0)
        return sent

    send()
    send()
    assert link.answer()  # the first request; the second is never fetched
    messages, size = kept(link, database)
    assert messages == 3
    assert size > 400_000
    clock[0] = 11.0
    transport.send([], 1.0)
    assert kept(link, database)[0] == 1  # the late reply is gone, with its request
    clock[0] = 71.0
    with monkeypatch.context() as later:
        later.setattr(sql_linkstate, "now", lambda: datetime.now(UTC) + timedelta(seconds=71))
        transport.send([], 1.0)
    assert kept(link, database) == (0, 0)
    sent = send()
    assert link.answer()
    (reply,) = transport.receive([sent], SizeLimit(10, 10**7))
    assert (reply.request, reply.error) == (sent, None)
