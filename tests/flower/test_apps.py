"""The two halves of an app: what fails on a node is told without data, and every end of a run is put down."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedblade.core.errors import Misconfigured, NonFinite, RunFailed
from fedblade.engines.nodes import Request, SizeLimit, own_protocol
from fedblade.flower import client_app, server_app
from fedblade.flower._messages import to_message, to_reply
from fedblade.flower._node import Node
from fedblade.flower._node_errors import TEXTS, NodeError
from fedblade.flower.app import Deployment
from fedblade.results import CONFIG, RunDirectory
from fedblade.runs import load_config


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def context(config):
    return Context(run_id=1, node_id=5, node_config=config, state=RecordDict(), run_config={})


def request():
    message = to_message(Request("train", 5, {"round": 0, **own_protocol()}), 1.0)
    message.metadata.__dict__["_message_id"] = "7"
    return message


def answered(message, config):
    return to_reply(client_app.app(message, context(config)), "7", 5, SizeLimit(0, 0))


def test_what_other_code_says_stays_on_the_node(monkeypatch, caplog):
    def fails(*_):
        raise ValueError("patient 7, John Doe")

    monkeypatch.setattr(Node, "answer", fails)
    reply = answered(request(), {"clients": "0"})
    assert reply.error == "it failed. The log of the node says more"
    assert "John Doe" in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunFailed("'/home/john/x' is full."), "it cannot do what it was asked. The log of the node says more"),
        (NodeError("disk", "'/home/john/x' is full."), "it cannot write to its folder. The log of the node says more"),
        (NonFinite("john's loss is NaN"), "a loss or a parameter of its client became NaN or infinite"),
        (NodeError("protocol", "john"), "it failed with the code 'protocol', which this coordinator does not know"),
    ],
)
def test_our_own_errors_are_told_as_codes_and_their_words_stay_on_the_node(error, said, monkeypatch, caplog):
    def fails(*_):
        raise error

    monkeypatch.setattr(Node, "answer", fails)
    assert answered(request(), {"clients": "0"}).error == said
    assert "john" in caplog.text


def test_what_cannot_be_sent_is_no_end_of_the_node(monkeypatch):
    monkeypatch.setattr(Node, "answer", lambda *_: ({"x": object()}, {}))
    assert answered(request(), {"clients": "0"}).error == "it failed. The log of the node says more"


def test_a_request_that_cannot_be_read_is_answered():
    message = request()
    message.content["facts"] = ConfigRecord({"json": "{"})
    assert answered(message, {"clients": "0"}).error == "it failed. The log of the node says more"


def unapproved(facts):
    raise NodeError("not pinned", f"another configuration: {facts['config']}")


def told(kind, facts):
    """What a node logs and answers that would approve of no request."""
    message = to_message(Request(kind, 5, facts), 1.0)
    message.metadata.__dict__["_message_id"] = "7"
    return to_reply(client_app.answer(message, lambda: pytest.fail("a node"), unapproved), "7", 5, SizeLimit(0, 0))


def test_a_refusal_is_logged_by_a_node_that_approves_of_no_request(caplog):
    reply = told("refused", own_protocol() | {"reason": "it claims client 3\x1b[2J"})
    assert (reply.error, reply.facts) == (None, {})
    assert "the coordinator has refused this node: it claims client 3\\x1b[2J" in caplog.text


def test_another_protocol_is_named_before_anything_else_is_looked_at(caplog):
    told("hello", {"protocol": 7, "version": "9.8"})
    assert "the coordinator speaks protocol 7 (fedblade '9.8'), this node protocol 1" in caplog.text
    assert told("hello", own_protocol() | {"config": 1}).error == TEXTS["not pinned"]


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
def test_a_node_without_clients_says_what_to_configure(config, said, caplog):
    with pytest.raises(Misconfigured, match="the node's configuration"):
        client_app.node_of(context(config))
    assert answered(request(), config).error == TEXTS["clients"]
    assert said in caplog.text


@pytest.mark.parametrize(
    ("config", "clients"),
    [({"clients": "0,3"}, (0, 3)), ({"clients": 4}, (4,)), ({"partition-id": 2}, (2,)), ({"clients": " 1, 2"}, (1, 2))],
)
def test_clients_of_a_node(config, clients):
    assert client_app.node_of(context(config)).clients == clients


def server_run(folder, *, resume=False):
    """Have the app's server carry out the run in `folder / "run"`; Flower's own wrapper asks for a task."""
    given = SimpleNamespace(run_config={"run-dir": str(folder / "run"), "resume": resume})
    server_app.server_app(folder)(None, given)


def events(folder):
    return [json.loads(line) for line in (folder / "run" / "deployment.jsonl").read_text().splitlines()]


@pytest.fixture
def server(monkeypatch):
    """The server of a small run, with a set-up that the test decides."""

    def begin(make_setup):
        monkeypatch.setattr(server_app, "read_app", lambda _: (load_config(None, {})[0], Deployment()))
        monkeypatch.setattr(server_app, "deployed_setup", make_setup)

    return begin


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (RunFailed("no node came."), {"event": "failed", "reason": "no node came."}),
        (KeyError("patient 7"), {"event": "failed", "reason": "a KeyError; Flower's log of the run says more"}),
        (KeyboardInterrupt(), {"event": "stopped"}),
    ],
)
def test_the_journal_has_each_start_of_a_run_and_how_it_ended(error, ends, server, tmp_path):
    def fails(*given):
        _, _, _, _, journal, _ = given
        journal({"event": "refused node", "node": "7"})
        raise error

    server(fails)
    for _ in range(2):
        # The folder of a run that found no nodes holds the journal alone, and the same command starts it again.
        with pytest.raises(type(error)):
            server_run(tmp_path)
    found = [{key: value for key, value in event.items() if key != "time_seconds"} for event in events(tmp_path)]
    refused = {"event": "refused node", "node": "7"}
    assert found == [{"event": "started", "start": 1}, refused, ends, {"event": "started", "start": 2}, refused, ends]


def test_the_server_knows_which_clients_a_node_may_speak_for(server, tmp_path):
    asked = []

    def fails(*given):
        *_, admitted = given
        asked.extend(admitted(node) for node in (7, 8, 9))
        raise RunFailed("far enough.")

    server(fails)
    with pytest.raises(RunFailed):
        server_run(tmp_path)
    (tmp_path / ".flower").mkdir()
    rows = [
        {"fingerprint": "a", "node_id": "7", "clients": [0, 2], "admitted_at": "t", "revoked_at": None},
        {"fingerprint": "b", "node_id": "8", "clients": [1], "admitted_at": "t", "revoked_at": "t"},
    ]
    (tmp_path / ".flower" / "admissions.json").write_text(json.dumps({"format": 1, "admissions": rows}))
    with pytest.raises(RunFailed):
        server_run(tmp_path)
    assert asked == [None, None, None, (0, 2), (), ()]


def test_a_start_after_a_kill_notes_the_kill(server, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "deployment.jsonl").write_text('{"event": "started", "start": 1}\n{"event": "lost"}\n')

    def fails(*_):
        raise RunFailed("no node came.")

    server(fails)
    with pytest.raises(RunFailed):
        server_run(tmp_path, resume=True)
    assert [event["event"] for event in events(tmp_path)] == ["started", "lost", "killed", "started", "failed"]


@pytest.mark.parametrize("resume", [False, True])
def test_a_coordinator_that_is_refused_the_folder_leaves_the_journal_alone(resume, server, tmp_path):
    live = RunDirectory(tmp_path / "run")
    live.open(resume=False)
    live.write(CONFIG, load_config(None, {})[0].to_toml())
    (tmp_path / "run" / "deployment.jsonl").write_text('{"event": "started", "start": 1}\n')
    server(lambda *_: pytest.fail("it was set up"))
    try:
        with pytest.raises(Misconfigured, match="in use by another process" if resume else "already holds a run"):
            server_run(tmp_path, resume=resume)
    finally:
        live.close()
    assert [event["event"] for event in events(tmp_path)] == ["started"]
