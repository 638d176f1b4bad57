"""A run that ends while a node fetches a message leaves no task behind that keeps the node busy."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import NodeStateFactory

from fedblade.flower._flwr_internals.servers import failing_when_the_run_ends


@pytest.mark.parametrize("mended", [False, True])
def test_the_task_of_a_message_that_cannot_be_fetched_is_ended(mended, monkeypatch):
    """Without the change Flower keeps the task: the day it no longer does, the change can go."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = Message(RecordDict({"facts": ConfigRecord({"a": 1})}), 7, "query")
    message.metadata.__dict__["_run_id"] = 5
    message.metadata.__dict__["_message_id"] = message.object_id
    store = ObjectStoreFactory().store()
    state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
    run = SimpleNamespace(run_id=5, fab_hash="f", primary_task_type=TaskType.SERVER_APP)
    monkeypatch.setattr(state, "get_run", lambda _: run)

    def ended(*_):
        raise RunNotRunningException

    if mended:
        pull = failing_when_the_run_ends(start_client_internal.pull_objects)
        monkeypatch.setattr(start_client_internal, "pull_objects", pull)
    start_client_internal._pull_and_store_message(
        state=state, object_store=store, node_config={}, receive=lambda: (message, get_object_tree(message)),
        get_run=lambda _: run, get_fab=ended, pull_object=ended, confirm_message_received=ended, trusted_entities=None,
    )  # fmt: skip
    statuses = [task.status.status for task in state.get_tasks()]
    assert statuses == (["finished"] if mended else ["pending"])
