"""The SuperLink of a run in the process of a test, and a node that answers as a test wants."""

from types import SimpleNamespace

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.runtime import runtime_handlers

from fedblade.flower._messages import reply_message


class Handlers:
    """The Runtime API of a SuperLink, without HTTP."""

    def __init__(self, state, task):
        self._state, self._task, self.bytes_pulled = state, task, 0

    def __getattr__(self, name):
        handler = {
            "PushMessages": runtime_handlers.push_messages,
            "PushObject": runtime_handlers.push_object,
            "PullMessages": runtime_handlers.pull_messages,
            "PullObject": self._pull_object,
            "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
        }[name]
        return lambda request: handler(request, self._state, self._task)

    def _pull_object(self, *given):
        found = runtime_handlers.pull_object(*given)
        self.bytes_pulled += len(found.object_content)
        return found


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

    def answer(self, tensors):
        """The node fetches its oldest request and answers it with these tensors."""
        (message,) = self.state.get_message_ins(self.member, limit=1)
        reply = reply_message(message, {}, tensors)
        reply.metadata.__dict__["_src_node_id"] = self.member
        reply.metadata.__dict__["_message_id"] = reply.object_id
        session = self.state.start_session(self.run.run_id)
        stored, missing = self.state.store_message_and_object_tree(reply, get_object_tree(reply), session)
        for key, each in get_all_nested_objects(reply).items():
            if key in missing:
                self.state.store_object(self.run.run_id, session, key, each.deflate())
        return stored
