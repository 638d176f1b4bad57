"""The client half of a run as Flower's ClientApp: one for every method."""

import logging
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedblade.core.errors import FedbladeError
from fedblade.flower._messages import MESSAGE_TYPE, answer, asked
from fedblade.flower._node import Node

app = ClientApp()


@app.query(MESSAGE_TYPE.partition(".")[2])  # type: ignore[untyped-decorator]
def reply(message: Message, context: Context) -> Message:
    """Do what the server asks with the data of this node; a failure is told in words, and without data."""
    kind, facts, tensors = asked(message)
    try:
        found, sums = node_of(context).answer(kind, facts, tensors)
    except FedbladeError as error:
        logging.getLogger(__name__).warning("request refused", exc_info=True)
        return answer(message, {"error": str(error)}, {})
    return answer(message, found, sums)


def node_of(context: Context) -> Node:
    """The node that a SuperNode's configuration describes: `clients`, `data`, `state-dir` and `device`.

    Without `clients` the partition that Flower's simulation gives a node is its client.
    """
    given = context.node_config
    clients = str(given["clients"] if "clients" in given else given["partition-id"])
    return Node(
        clients=tuple(int(client) for client in clients.split(",")),
        data=str(given["data"]) if "data" in given else None,
        folder=Path(str(given.get("state-dir", Path.home() / ".fedblade" / f"node-{clients}"))),
        device=str(given.get("device", "auto")),
    )
