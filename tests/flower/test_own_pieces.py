"""A node cannot try out what another node has sent."""

import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Array
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.superlink.servicer.fleet import fleet_handlers

from fedblade.engines.nodes import Request
from fedblade.flower._flwr_internals.own_pieces import own_pieces_only
from fedblade.flower._grid_transport import GridTransport
from support.flower_logging import logging_kept
from support.superlink import Link

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own


@pytest.fixture
def link(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_handlers, "check_abort", lambda *_: None)  # the run of the test does not go on
    link = Link(tmp_path / "state.db", monkeypatch)
    with logging_kept():
        yield link
    link.state._engine.dispose()
    link.state.object_store._engine.dispose()


def found(pull, link, node, number):
    """Whether a node finds the pieces of a number, if it is told that they are there."""
    pieces = get_all_nested_objects(Array(torch.tensor([number]).numpy()))
    asked = [PullObjectRequest(node=Node(node_id=node), run_id=link.run.run_id, object_id=name) for name in pieces]
    return [pull(request=request, state=link.state).object_found for request in asked]


def test_a_node_finds_the_pieces_of_messages_to_itself_alone(link):
    other = link.state.create_node("none", "none", b"other", 30.0)
    link.state.activate_node(other, 30.0)
    transport, pull = GridTransport(link), own_pieces_only(fleet_handlers.pull_object)
    assert found(pull, link, link.member, 100.0) == [False, False]
    transport.send([Request("train", link.member, {}, {"model": torch.tensor([100.0])})], 10.0)
    assert found(pull, link, link.member, 100.0) == [True, True]
    assert found(pull, link, other, 100.0) == [False, False]
    assert link.answer({"samples": torch.tensor([437.0])})
    assert found(fleet_handlers.pull_object, link, other, 437.0) == [True, True]  # what Flower does
    assert found(pull, link, other, 437.0) == [False, False]


def test_pieces_of_two_messages_are_found_by_both_nodes(link):
    other = link.state.create_node("none", "none", b"other", 30.0)
    link.state.activate_node(other, 30.0)
    requests = [Request("train", node, {}, {"model": torch.tensor([100.0])}) for node in (link.member, other)]
    GridTransport(link).send(requests, 10.0)
    pull = own_pieces_only(fleet_handlers.pull_object)
    assert found(pull, link, link.member, 100.0) == found(pull, link, other, 100.0) == [True, True]
