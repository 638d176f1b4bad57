"""A node whose key the coordinator does not know learns the reason from its own log."""

import logging

import pytest

pytest.importorskip("flwr")
import httpx
from flwr.supercore.logger import FLOWER_LOGGER

from fedblade.flower._flwr_internals.servers import saying_why_refused


@pytest.mark.parametrize(("status", "is_told"), [(401, True), (503, False)])
def test_a_node_that_is_refused_says_why_and_only_then(status, is_told, caplog):
    def call():
        request = httpx.Request("POST", "https://127.0.0.1/v1/fleet/activate-node")
        httpx.Response(status, text="the key is \x1b[31munknown", request=request).raise_for_status()

    FLOWER_LOGGER.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.ERROR, FLOWER_LOGGER.name), pytest.raises(httpx.HTTPStatusError):
            saying_why_refused(call)()
    finally:
        FLOWER_LOGGER.removeHandler(caplog.handler)
    told = [message for message in caplog.messages if "The coordinator refuses this node: the key is" in message]
    assert bool(told) == is_told
    assert all("\x1b" not in message and "fedblade flower admit" in message for message in told)
