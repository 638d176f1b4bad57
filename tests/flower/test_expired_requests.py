"""Requests that nobody waits for any more do not pile up in the SuperLink's database."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
import torch

pytest.importorskip("flwr")
from flwr.server.superlink.linkstate import sql_linkstate

from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower import _grid_transport
from fedblade.flower._grid_transport import GridTransport
from support.flower_logging import logging_kept
from support.superlink import Link

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own
MODEL = {"weight": torch.zeros(100_000)}


@pytest.fixture(autouse=True)
def _logging():
    with logging_kept():
        yield


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
    assert link.answer(MODEL)  # the first request; the second is never fetched
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
    assert link.answer(MODEL)
    (reply,) = transport.receive([sent], SizeLimit(10, 10**7))
    assert (reply.request, reply.error) == (sent, None)
