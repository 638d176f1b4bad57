"""A node's executor and its SuperNode, which is in this process: messages whose pieces come slowly are answered."""

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")
from flwr.app import Context, RecordDict
from flwr.common.serde import run_from_proto
from flwr.proto.run_pb2 import Run
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.servicer.runtime import runtime_handlers

from fedblade.engines.nodes import Request
from fedblade.flower._flwr_internals import tasks
from fedblade.flower._messages import to_message
from support.flower_logging import logging_kept

RUN, NODE = 7, 5


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    for name, value in (("_run_id", RUN), ("_node_id", NODE), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    with logging_kept():
        yield


class SuperNode:
    """The Runtime API of a SuperNode, without HTTP; what it receives is given to it piece by piece."""

    def __init__(self):
        self.state = NodeStateFactory(ObjectStoreFactory()).state()
        self.state.set_node_id(NODE)
        self.message = to_message(Request("hello", NODE, {}), 60.0)
        self.message.metadata.__dict__["_message_id"] = self.message.object_id
        self.tree, self.pieces = get_object_tree(self.message), get_all_nested_objects(self.message)

    def __getattr__(self, name):
        handler = {
            "PushMessages": runtime_handlers.push_messages,
            "PushObject": runtime_handlers.push_object,
            "PullMessages": runtime_handlers.pull_messages,
            "PullObject": runtime_handlers.pull_object,
            "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
        }[name]
        return lambda request: handler(request, self.state, SimpleNamespace(run_id=RUN))

    @property
    def given(self):
        """The input of a task."""
        run = run_from_proto(Run(run_id=RUN))
        return tasks.TaskInput(b"", {}, run, Context(RUN, NODE, {}, RecordDict(), {}))

    def announce(self):
        """What a SuperNode does when it hears of a message."""
        self.state.object_store.preregister(RUN, self.tree)
        self.state.store_message(self.message)

    def receive(self):
        """Put the pieces of the message down, as they come."""
        for name, piece in self.pieces.items():
            self.state.object_store.put(name, piece.deflate())


def test_a_message_that_is_refused_before_its_pieces_have_come_is_answered():
    node = SuperNode()
    refusing = threading.Thread(target=tasks.refuse_message, args=(node, node.given, "another app"))
    refusing.start()
    time.sleep(0.2)
    node.announce()
    time.sleep(0.3)
    node.receive()
    refusing.join(20)
    (reply,) = node.state.get_messages_legacy(is_reply=True)
    assert reply.metadata.reply_to_message_id == node.message.object_id
    assert reply.error.reason == "another app"


def test_a_task_without_a_message_is_given_up(monkeypatch):
    monkeypatch.setattr(tasks, "_ANNOUNCED_SECONDS", 0.2)
    node = SuperNode()
    with pytest.raises(tasks.GIVEN_UP):
        tasks.pull_message(node, node.given)
