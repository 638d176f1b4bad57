"""Requests that nobody waits for any more.

The SuperLink would keep them, and late replies to them, until the run ends.
"""

import contextlib
from collections.abc import Sequence

import httpx
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.superlink.grid import HttpGrid


def throw_away(grid: Grid, late: Sequence[str], ended: Sequence[str]) -> None:
    """Have the SuperLink forget the replies to requests that are `late` or `ended`; no reply is fetched or opened.

    A node may still be fetching the arrays of a late request. The SuperLink no longer hands out an ended request, and
    forgets it too. Another grid than that of a SuperLink keeps nothing on disk, and is left alone.
    """
    if not isinstance(grid, HttpGrid) or not (late or ended):
        return
    client = grid._runtime_client
    with contextlib.suppress(httpx.HTTPStatusError):
        arrived = client.PullMessages(PullAppMessagesRequest(message_ids=[*late, *ended])).messages_list
        for known in (*(message.metadata.message_id for message in arrived), *ended):
            client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=known)
            )
