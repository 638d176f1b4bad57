"""No more of a reply is fetched into memory than an honest one can have."""

import time

import pytest
import torch

pytest.importorskip("flwr")
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

from fedblade.engines.nodes import Request, SizeLimit
from fedblade.flower._flwr_internals import limited_pulls
from fedblade.flower._flwr_internals.limited_pulls import within_limit
from fedblade.flower._grid_transport import GridTransport
from support.flower_logging import logging_kept
from support.superlink import Link

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """Has a node answer with tensors: the reply within a limit, and the bytes that were fetched of it."""
    monkeypatch.setattr(http_grid, "pull_objects", within_limit(pull_objects))
    link = Link(tmp_path / "state.db", monkeypatch)

    def answered(tensors, limit, *, pieces_come=True):
        if not pieces_come:
            monkeypatch.setattr(link.state, "store_object", lambda *_: True)
        transport = GridTransport(link)
        (sent,) = transport.send([Request("train", link.member, {})], 10.0)
        assert link.answer(tensors)
        (reply,) = transport.receive([sent], limit)
        return reply, link.handlers.bytes_pulled

    with logging_kept():
        yield answered
    link.state._engine.dispose()
    link.state.object_store._engine.dispose()


LONG_NAME = "n" * 300
HONEST = [
    {},
    {"loss": torch.zeros(())},
    {"model": torch.arange(6 * 2**20, dtype=torch.uint8)},
    {f"{LONG_NAME}{number}": torch.tensor(number) for number in range(50)},
]


@pytest.mark.parametrize("tensors", HONEST, ids=["none", "one", "several chunks", "many"])
def test_a_reply_that_just_meets_the_limit_is_fetched(answered, tensors):
    """All tensors differ, because Flower sends equal ones only once."""
    limit = SizeLimit.of(tensors)
    reply, _ = answered(tensors, SizeLimit(limit.arrays, limit.bytes, facts=2))
    assert reply.error is None
    assert reply.tensors.keys() == tensors.keys()


def test_of_a_larger_reply_only_a_part_is_fetched(answered):
    tensors = {str(number): torch.arange(12_500) + number for number in range(40)}  # of 100 kB each
    reply, fetched = answered(tensors, SizeLimit(1, 1000, facts=2))
    assert reply.node is not None
    assert reply.error == "it has more than 13568 bytes, which no answer has; the rest was not fetched"
    assert fetched < 2e6  # pieces that are under way when another is one too many arrive as well


def test_a_reply_of_very_many_pieces_is_not_even_begun(answered):
    tensors = {str(number): torch.tensor(number) for number in range(150)}
    reply, fetched = answered(tensors, SizeLimit(1, 1000, facts=2))
    assert "more than" in reply.error
    assert fetched == 0


def test_pieces_that_do_not_come_are_waited_for_as_long_as_a_slow_link_needs(answered, monkeypatch):
    monkeypatch.setattr(limited_pulls, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(limited_pulls, "_SLOWEST_LINK", 10_000)
    began = time.monotonic()
    reply, _ = answered({"model": torch.zeros(3)}, SizeLimit(1, 1000, facts=2), pieces_come=False)
    assert (reply.node, "unavailable" in reply.error) == (None, True)
    assert 1.8 < time.monotonic() - began < 60
