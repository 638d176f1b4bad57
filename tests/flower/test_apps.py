"""The two halves of an app: what fails on a node is told without data, and every end of a run is put down."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower import client_app, server_app
from fedblade.flower._messages import to_message, to_reply
from fedblade.flower._node import Node
from fedblade.flower.app import Deployment
from fedblade.runs import load_config


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def context(config):
    return Context(run_id=1, node_id=5, node_config=config, state=RecordDict(), run_config={})


def request():
    message = to_message(Request("train", 5, {"round": 0}), 1.0)
    message.metadata.__dict__["_message_id"] = "7"
    return message


def answered(message, config):
    return to_reply(client_app.app(message, context(config)), "7", 5, SizeLimit(0, 0))


def test_what_other_code_says_stays_on_the_node(monkeypatch, caplog):
    def fails(*_):
        raise ValueError("patient 7, John Doe")

    monkeypatch.setattr(Node, "answer", fails)
    reply = answered(request(), {"clients": "0"})
    assert reply.error == "the node failed with a ValueError. Its log says more."
    assert "John Doe" in caplog.text


def test_our_own_errors_are_told_as_they_are(monkeypatch, caplog):
    def fails(*_):
        raise RunFailed("the disk is full.")

    monkeypatch.setattr(Node, "answer", fails)
    assert answered(request(), {"clients": "0"}).error == "the disk is full."
    assert "the disk is full" in caplog.text


def test_what_cannot_be_sent_is_no_end_of_the_node(monkeypatch):
    monkeypatch.setattr(Node, "answer", lambda *_: ({"x": object()}, {}))
    assert answered(request(), {"clients": "0"}).error == "the node failed with a TypeError. Its log says more."


def test_a_request_that_cannot_be_read_is_answered():
    message = request()
    message.content["facts"] = ConfigRecord({"json": "{"})
    assert answered(message, {"clients": "0"}).error == "the node failed with a JSONDecodeError. Its log says more."


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "does not say for which clients it speaks. Start the SuperNode with --node-config"),
        ({"clients": "a"}, "has clients = 'a'; expected the numbers of its clients, such as 0 or 0,3."),
        ({"clients": ""}, "has clients = ''; expected"),
        ({"clients": "1,,2"}, "has clients = '1,,2'; expected"),
        ({"clients": 1.5}, "has clients = '1.5'; expected"),
        ({"partition-id": "x"}, "has partition-id = 'x'; expected"),
    ],
)
def test_a_node_without_clients_says_what_to_configure(config, said):
    with pytest.raises(Misconfigured, match="the node's configuration"):
        client_app.node_of(context(config))
    assert said in (answered(request(), config).error or "")


@pytest.mark.parametrize(
    ("config", "clients"),
    [({"clients": "0,3"}, (0, 3)), ({"clients": 4}, (4,)), ({"partition-id": 2}, (2,)), ({"clients": " 1, 2"}, (1, 2))],
)
def test_clients_of_a_node(config, clients):
    assert client_app.node_of(context(config)).clients == clients


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RunFailed("round 3: nobody answered."), "round 3: nobody answered."),
        (KeyError("patient 7"), "a KeyError; Flower's log of the run says more"),
    ],
)
def test_every_failure_of_a_run_is_put_down(error, reason, monkeypatch, tmp_path):
    def fails(*_, **__):
        raise error

    config = load_config(None, {})[0]
    monkeypatch.setattr(server_app, "read_app", lambda _: (config, Deployment()))
    monkeypatch.setattr(server_app.RunJob, "execute", fails)
    # Flower's own wrapper asks for a task that it runs in.
    app = server_app.server_app(tmp_path)
    given = SimpleNamespace(run_config={"run-dir": str(tmp_path), "resume": False})
    with pytest.raises(type(error)):
        app(None, given)
    event = json.loads((tmp_path / "deployment.jsonl").read_text())
    assert (event["event"], event["reason"]) == ("failed", reason)
