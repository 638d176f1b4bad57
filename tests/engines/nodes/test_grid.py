"""What travels as Flower's messages, and a run through a Flower grid in this process."""

import io

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from google.protobuf.message import DecodeError

from fedblade.core.errors import RunFailed
from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._messages import read_request, reply_message, to_message, to_reply
from fedblade.flower._server import deployed_setup
from fedblade.flower.client_app import app
from support.node_runs import QUICK, alone, config_of, digest, trained

SOME = SizeLimit(6, 1000)
TENSORS = {
    "params/a.b": torch.randn(3, 2),
    "extra/none": torch.zeros(0, 4, dtype=torch.float64),
    "extra/one": torch.tensor(2.5, dtype=torch.float64),
    "truth": torch.tensor([True, False]),
    "whole": torch.tensor([2**60, -1]),
    "turned": torch.arange(6.0).reshape(2, 3).T,
}


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """A process of Flower's knows which task it is."""
    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


def sent(facts, tensors=None):
    """A message that a node answers to request 7."""
    request = to_message(Request("train", 5, {"round": 0}), 1.0)
    request.metadata.__dict__["_message_id"] = "7"
    return reply_message(request, facts, tensors or {})


def got(message, largest=SOME):
    """The reply that a message is to request 7, which went to node 5."""
    return to_reply(message, "7", 5, largest)


def test_requests_and_replies_come_through_as_they_are():
    request = Request("train", 5, {"round": 3, "lr": 0.1, "used": None, "more": [1, {"x": "ü"}]}, TENSORS)
    message = to_message(request, 1.0)
    assert message.metadata.dst_node_id == 5
    kind, facts, tensors = read_request(message)
    assert (kind, facts) == ("train", request.facts)
    reply = got(sent({"kept": True}, TENSORS), SizeLimit.of(TENSORS))
    assert (reply.request, reply.facts, reply.error) == ("7", {"kept": True}, None)
    for each in (tensors, reply.tensors):
        assert each.keys() == TENSORS.keys()
        for name, leaf in TENSORS.items():
            assert each[name].dtype == leaf.dtype
            assert each[name].shape == leaf.shape
            assert torch.equal(each[name], leaf)


def answering(content):
    """A message with any content that answers request 7."""
    request = to_message(Request("train", 5, {"round": 0}), 1.0)
    request.metadata.__dict__["_message_id"] = "7"
    return Message(content=content, reply_to=request)


def content(arrays, text="{}"):
    return RecordDict({"tensors": ArrayRecord(arrays), "facts": ConfigRecord({"json": text})})


def array(data, dtype="float64", shape=(1,), stype="numpy.ndarray"):
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)


def pickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([print, {}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def header(shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zipped():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "broken",
    [
        lambda: content({"x": array(pickled())}),
        lambda: content({"x": array(b"nonsense")}),
        lambda: content({"x": array(b"")}),
        lambda: content({"x": array(header((10**15,)))}),
        lambda: content({"x": array(zipped())}),
        lambda: content({"x": array(np.zeros(2).tobytes(), stype="pickle")}),
        lambda: content({"x": Array(np.array(["a", "b"]))}),
        lambda: content({"x": Array(np.zeros(2, dtype=">f8"))}),
        lambda: content({}, "{"),
        lambda: content({}, "[1, 2]"),
        lambda: content({}, "3"),
        lambda: content({}, "[" * 100_000),
        lambda: RecordDict({"facts": ConfigRecord({"json": "{}"})}),
        lambda: RecordDict({"tensors": ArrayRecord({})}),
        lambda: RecordDict({"tensors": ConfigRecord({"x": 1}), "facts": ConfigRecord({"json": "{}"})}),
        lambda: RecordDict({}),
    ],
)
def test_messages_that_cannot_be_read_are_replies_with_an_error(broken):
    reply = got(answering(broken()))
    assert reply.error is not None
    assert reply.error.startswith("it cannot be read (")
    assert (reply.facts, reply.tensors) == ({}, {})


def test_errors_are_told_whatever_their_type():
    assert got(sent({"error": "disk"})).error == "it cannot write to its folder. The log of the node says more"
    unknown = "it failed with the code {}, which this coordinator does not know"
    assert got(sent({"error": {"a": 1}})).error == unknown.format("a value of type dict")
    assert got(sent({"error": None})).error == unknown.format("None")


def test_what_flower_says_in_place_of_a_node_has_no_node():
    request = to_message(Request("train", 5, {"round": 0}), 1.0)
    request.metadata.__dict__["_message_id"] = "7"
    reply = got(Message(error=Error(code=5, reason="gone"), reply_to=request))
    assert (reply.request, reply.node, reply.error) == ("7", None, "Flower: gone (code 5)")


class HereGrid(Grid):
    """Calls the client app of each node in this process, as the deployment would in others."""

    def __init__(self, contexts):
        self._contexts, self._replies, self._number = contexts, {}, 0
        self.pulled, self.pushed = [], []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *_, **__):
        raise NotImplementedError

    def send_and_receive(self, *_, **__):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self._contexts)

    get_nodes = None

    def push_messages(self, messages):
        messages = list(messages)
        self.pushed.append(len(messages))
        ids = []
        for message in messages:
            self._number += 1
            message.metadata.__dict__["_message_id"] = str(self._number)
            ids.append(str(self._number))
            TaskIdentity.node_id = message.metadata.dst_node_id
            reply = app(message, self._contexts[message.metadata.dst_node_id])
            reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
            self._replies[str(self._number)] = reply
        return ids

    def pull_messages(self, message_ids):
        self.pulled.append(len(message_ids))
        return [self._replies.pop(each) for each in message_ids if each in self._replies]


def context(node, **given):
    return Context(run_id=1, node_id=node, node_config=given, state=RecordDict(), run_config={})


def test_a_run_through_a_grid_gives_the_sequential_model(tmp_path):
    config = config_of("fedblade")
    contexts = {
        20: context(20, clients="0,3", **{"state-dir": str(tmp_path / "a"), "device": "cpu"}),
        21: context(21, clients="1", **{"state-dir": str(tmp_path / "b"), "device": "cpu"}),
        22: context(22, **{"partition-id": 2, "state-dir": str(tmp_path / "c"), "device": "cpu"}),
        23: context(23, clients=4, **{"state-dir": str(tmp_path / "d"), "device": "cpu"}),
    }
    events = []
    grid = HereGrid(contexts)
    setup = deployed_setup(config, QUICK, GridTransport(grid), tmp_path / "run", events.append)
    assert digest(trained(setup)) == digest(alone(config))
    assert {event["event"] for event in events} == {"updates"}
    assert max(grid.pushed) <= 4
    assert max(grid.pulled) == 1


def test_a_failure_on_a_node_is_told_without_its_path(tmp_path, caplog):
    contexts = {20: context(20, clients="0", data=str(tmp_path / "gone.npz"))}
    config = config_of("fedavg", num_clients=1, clients_per_round=1)
    apart = QUICK.model_copy(update={"data": "nodes", "num_classes": 10})
    events = []
    with pytest.raises(RunFailed, match="Node 20 was refused: it cannot read its data") as failed:
        deployed_setup(config, apart, GridTransport(HereGrid(contexts)), tmp_path / "run", events.append)
    assert [event["node"] for event in events] == ["20"]
    assert "gone.npz' does not exist" in caplog.text
    assert "gone.npz" not in f"{failed.value} {events}"


class HostileGrid(HereGrid):
    """What node 22 sends after training is not what it says; the others are honest."""

    def __init__(self, contexts, change):
        super().__init__(contexts)
        self._change = change

    def pull_messages(self, message_ids):
        return [self._changed(message) for message in super().pull_messages(message_ids)]

    def _changed(self, message):
        is_hostile = message.metadata.src_node_id == 22 and message.content["tensors"]
        return self._change(message) if is_hostile else message


def undecodable(message):
    raise DecodeError("Error parsing message with type 'flwr.proto.ConfigRecord'")


def oversized(message):
    message.content["tensors"]["more"] = Array(np.zeros(10**7))
    return message


def forged(message):
    """In the name of another node, to what that one was asked."""
    message.metadata.__dict__["_reply_to_message_id"] = str(int(message.metadata.reply_to_message_id) - 1)
    message.metadata.__dict__["_src_node_id"] = 21
    return message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (undecodable, "Flower cannot unpack it (DecodeError)"),
        (oversized, " arrays in 800"),
        (forged, "it says that it answers another request"),
    ],
)
def test_what_a_node_sends_is_refused_and_the_run_goes_on(change, reason, tmp_path):
    config = config_of("fedavg", num_clients=3, clients_per_round=3, rounds=1, **{"evaluation.metrics": []})
    contexts = {
        20 + k: context(20 + k, clients=k, **{"state-dir": str(tmp_path / str(k)), "device": "cpu"}) for k in range(3)
    }
    events = []
    setup = deployed_setup(config, QUICK, GridTransport(HostileGrid(contexts, change)), tmp_path / "run", events.append)
    far = trained(setup)
    event, updates = events
    assert (updates["event"], sorted(updates["lengths"])) == ("updates", ["0", "1"])
    assert (event["event"], event["client"], event["node"]) == ("refused reply", 2, "22")
    assert reason in event["reason"]
    assert far.history[0]["count_refused_replies"] == 1
    assert digest(far) == digest(alone(config, {0: {2}}))
