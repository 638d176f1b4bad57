"""Messages: how long they live, how large they may be, and that what they say cannot act on a terminal."""

import tracemalloc

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower._messages import reply_message, to_message, to_reply

ANSWER = {"sums/delta/w": torch.zeros(100, 10, dtype=torch.float64), "sums/weight/weight": torch.zeros(1)}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def asked(seconds=1.0):
    message = to_message(Request("train", 5, {"round": 3}), seconds)
    message.metadata.__dict__["_message_id"] = "7"
    return message


def carrying(arrays, text: object = "{}"):
    content = RecordDict({"tensors": ArrayRecord(arrays), "facts": ConfigRecord({"json": text})})
    return Message(content=content, reply_to=asked())


def got(message, largest):
    return to_reply(message, "7", 5, largest)


@pytest.mark.parametrize(("seconds", "lives"), [(600.0, 1200.0), (60.0, 120.0), (0.05, 60.05)])
def test_a_request_outlives_its_round_by_as_long_again_and_at_least_a_minute(seconds, lives):
    request = asked(seconds)
    assert request.metadata.ttl == pytest.approx(lives)
    reply = reply_message(request, {}, {})
    ends = request.metadata.created_at + lives
    assert reply.metadata.created_at + reply.metadata.ttl == pytest.approx(ends)


@pytest.mark.parametrize("ahead", [599.0, -3600.0])
def test_a_reply_at_the_end_of_a_round_lives_although_clocks_differ(ahead):
    """A request of ten minutes that a node answers in the last second, by a clock of its own."""
    request = asked(600.0)
    request.metadata.__dict__["_created_at"] -= 599.0 + ahead
    assert reply_message(request, {}, {}).metadata.ttl > 0


def test_what_was_asked_for_fits_exactly():
    reply = got(reply_message(asked(), {}, ANSWER), SizeLimit.of(ANSWER))
    assert reply.error is None
    assert reply.tensors.keys() == ANSWER.keys()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.zeros(10**6)}, "it has 1 arrays in 8000157 bytes; an answer has at most 2 in 8004"),
        ({"a": np.zeros(600), "b": np.zeros(600)}, "it has 2 arrays in 9914 bytes"),
        ({name: np.zeros(1) for name in "abc"}, "it has 3 arrays in 495 bytes; an answer has at most 2 in"),
    ],
)
def test_what_is_larger_is_refused_and_the_sizes_are_told(arrays, said):
    reply = got(carrying({name: Array(each) for name, each in arrays.items()}), SizeLimit.of(ANSWER))
    assert said in (reply.error or "")
    assert (reply.request, reply.node, reply.tensors) == ("7", 5, {})


def test_where_nothing_was_asked_for_no_array_is_opened():
    assert "at most 0 in 0" in (got(carrying({"a": Array(np.zeros(1))}), SizeLimit.of({})).error or "")


def test_what_is_too_large_is_never_copied():
    message = carrying({"a": Array(np.zeros(5 * 10**6))})
    tracemalloc.start()
    try:
        reply = got(message, SizeLimit.of(ANSWER))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert reply.error is not None


@pytest.mark.parametrize("text", [b"{}", [1, 2], 3])
def test_facts_are_a_text(text):
    assert got(carrying({}, text), SizeLimit.of({})).error == "it cannot be read (ValueError)"


def test_long_facts_are_refused():
    said = got(carrying({}, "{" + " " * 10**6 + "}"), SizeLimit.of({})).error
    assert said == "it has 1000002 characters of facts; an answer has at most 1000000"


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"more": ArrayRecord({"a": Array(np.zeros(10**6))})}, "it has the records ['more']; expected the tensors and"),
        ({"\x1b[2J": ConfigRecord({"x": b"y" * 10**6})}, r"it has the records ['\x1b[2J']; expected"),
        ({"facts": ConfigRecord({"json": "{}", "x": b"y" * 10**6})}, "it has the records ['x']; expected"),
    ],
)
def test_records_beside_tensors_and_facts_are_refused(records, said):
    message = carrying({})
    message.content.update(records)
    assert said in (got(message, SizeLimit.of({})).error or "")


def test_long_names_count_as_bytes():
    reply = got(carrying({"n" * 10**5: Array(np.zeros(1))}), SizeLimit(1, 8))
    assert "it has 1 arrays in 100" in (reply.error or "")


def test_what_a_message_says_of_itself_is_not_believed():
    message = reply_message(asked(), {"round": 3}, {})
    message.metadata.__dict__["_src_node_id"] = 99
    assert got(message, SizeLimit.of({})).node == 5
    message.metadata.__dict__["_reply_to_message_id"] = "8"
    reply = got(message, SizeLimit.of({}))
    assert (reply.request, reply.node, reply.facts) == ("7", 5, {})
    assert reply.error == "it says that it answers another request"


ESCAPES = "\x1b]0;owned\x07\x1b[2Jdone\r\n"


@pytest.mark.parametrize(
    "message",
    [
        lambda: reply_message(asked(), {"error": ESCAPES}, {}),
        lambda: reply_message(asked(), {"error": [ESCAPES]}, {}),
        lambda: reply_message(asked(), {"error": "protocol", "protocol": ESCAPES, "version": ESCAPES}, {}),
        lambda: Message(error=Error(code=2, reason=ESCAPES), reply_to=asked()),
    ],
)
def test_reasons_are_printable_and_short(message):
    said = got(message(), SizeLimit.of({})).error or ""
    assert said.isprintable()
    assert "done" in said
    assert len(got(reply_message(asked(), {"error": "x" * 10**5}, {}), SizeLimit.of({})).error or "") <= 500


@pytest.mark.parametrize(("code", "node"), [(2, 5), (8, 5), (3, None), (4, None), (5, None)])
def test_a_node_that_is_gone_is_told_from_an_app_that_failed(code, node):
    reply = got(Message(error=Error(code=code, reason="so"), reply_to=asked()), SizeLimit.of({}))
    assert (reply.node, reply.error) == (node, f"Flower: so (code {code})")


def test_the_codes_are_those_of_flower():
    unavailable = {value for name, value in vars(ErrorCode).items() if name.endswith("UNAVAILABLE")}
    assert unavailable == {3, 4, 5}
