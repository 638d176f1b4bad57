"""The post: what Flower's grid hands out once, requests that live as long as they are waited for, and sizes."""

import httpx
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedblade.engines.nodes import Reply, Request, SizeLimit, _open_requests
from fedblade.engines.nodes._open_requests import OpenRequests
from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._messages import reply_message


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(_open_requests, "_PAUSE", 0.0)


class Link(Grid):
    """Keeps messages as the SuperLink does: as objects in bytes, each handed out once, and unpacked after that."""

    get_nodes = None

    def __init__(self, spoil=lambda node, contents: contents):
        self._spoil, self._kept, self.pushed, self.refuse = spoil, {}, [], set()

    def set_run(self, run):
        raise NotImplementedError

    run = property()
    create_message = send_and_receive = set_run

    def get_node_ids(self):
        return [1, 2, 3, 4, 5]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.pushed.append(message)
            id_ = message.metadata.__dict__["_message_id"] = f"m{len(self.pushed)}"
            ids.append(None if node in self.refuse else id_)
            reply = reply_message(message, {"node": node}, {})
            reply.metadata.__dict__["_message_id"] = reply.object_id
            contents = {key: each.deflate() for key, each in get_all_nested_objects(reply).items()}
            self._kept[id_] = reply.object_id, self._spoil(node, contents)
        return ids

    def pull_messages(self, message_ids):
        taken = [self._kept.pop(id_) for id_ in message_ids if id_ in self._kept]
        return [inflate_object_from_contents(top, contents) for top, contents in taken]


def spoiled(kind, body):
    """Node 3 sends objects of one kind with another body; the SuperLink looks at heads only."""

    def spoil(node, contents):
        def change(content):
            head, _, old = content.partition(b"\0")
            return head + b"\0" + body(old) if head.startswith(kind) else content

        return {key: change(each) for key, each in contents.items()} if node == 3 else contents

    return spoil


LARGE = SizeLimit(100, 10**6)


def replies(transport, asked, seconds, limit):
    return OpenRequests(transport, limit).replies(asked, seconds, seconds)


def requests(*nodes):
    return [Request("train", node, {"round": 0}) for node in nodes]


@pytest.mark.parametrize(
    "spoil",
    [
        spoiled(b"ConfigRecord", lambda old: b"\xff" * len(old)),
        spoiled(b"RecordDict", lambda old: b"[" * len(old)),
        spoiled(b"Message", lambda old: b"\xff" * len(old)),
        lambda node, contents: {} if node == 3 else contents,
    ],
)
def test_a_reply_that_flower_cannot_unpack_takes_no_other_along(spoil):
    found = list(replies(GridTransport(Link(spoil)), requests(1, 2, 3, 4, 5), 1.0, LARGE))
    assert [request.node for request, _ in found] == [1, 2, 3, 4, 5]
    assert [reply.facts.get("node") for _, reply in found] == [1, 2, None, 4, 5]
    (error,) = [reply for _, reply in found if reply.error is not None]
    assert error.node == 3
    assert error.error.startswith("Flower cannot unpack it (")
    assert "parsing" not in error.error


def test_a_link_that_is_gone_ends_the_run():
    """It is no fault of a node's."""

    def gone(_):
        raise httpx.ConnectError("refused")

    link = Link()
    link.pull_messages = gone
    with pytest.raises(httpx.ConnectError):
        list(replies(GridTransport(link), requests(1), 1.0, LARGE))


def test_whom_a_reply_is_from_is_known_from_the_request():
    def lying(ids):
        messages = Link.pull_messages(link, ids)
        for message in messages:
            message.metadata.__dict__["_src_node_id"] = 1
        return messages

    link = Link()
    link.pull_messages = lying
    found = list(replies(GridTransport(link), requests(1, 2), 1.0, LARGE))
    assert [(request.node, reply.node, reply.error) for request, reply in found] == [(1, 1, None), (2, 2, None)]


def test_requests_live_as_long_as_they_are_waited_for():
    link = Link()
    list(replies(GridTransport(link), requests(1, 2), 300.0, LARGE))
    assert [message.metadata.ttl for message in link.pushed] == pytest.approx([600.0, 600.0], abs=1)


def test_a_grid_that_takes_only_some_of_the_messages_says_which():
    link = Link()
    link.refuse = {2}
    found = list(replies(GridTransport(link), requests(1, 2, 3), 1.0, LARGE))
    assert {request.node: reply.error for request, reply in found} == {
        1: None, 2: "the request could not be sent", 3: None
    }  # fmt: skip


class Scripted:
    """A node that comes back after the first look, and a post that may not reach it then."""

    def __init__(self, ids):
        self._ids, self.incarnation, self.sent, self.largest = iter(ids), 0, [], []

    def nodes(self):
        return {1: str(self.incarnation)}

    def send(self, requests, seconds):
        self.sent.append(seconds)
        return [next(self._ids) for _ in requests]

    def receive(self, waiting, largest):
        self.largest.append(largest)
        self.incarnation += 1
        return [Reply("again", 1)] if "again" in waiting else []


def test_a_request_that_cannot_be_repeated_is_told():
    post = Scripted(["first", None])
    ((request, reply),) = replies(post, requests(1), 5.0, SizeLimit(0, 0))
    assert (request.node, reply.request, reply.error) == (1, "", "the request could not be sent")


def test_a_request_that_is_repeated_lives_for_the_time_that_is_left():
    post = Scripted(["first", "again"])
    ((_, reply),) = replies(post, requests(1), 5.0, SizeLimit(0, 0))
    assert reply.error is None
    first, again = post.sent
    assert first == pytest.approx(5.0, abs=0.1)
    assert 0 < again < first


def test_no_reply_larger_than_asked_for_is_opened():
    model = {"a": torch.zeros(10**7), "b": torch.zeros(3, dtype=torch.float64)}
    assert SizeLimit.of(model) == SizeLimit(2, 4 * 10**7 + 24)
    post = Scripted(["again"])
    list(replies(post, requests(1), 5.0, SizeLimit(3, 4)))
    assert post.largest == [SizeLimit(3, 4)]


def test_messages_are_what_this_test_takes_them_for():
    """Without spoiling, what the link keeps in bytes is the message again."""
    link = Link()
    GridTransport(link).send(requests(4), 1.0)
    (message,) = link.pull_messages(["m1"])
    assert isinstance(message, Message)
    assert link.pull_messages(["m1"]) == []
