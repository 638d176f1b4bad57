"""The client half of a run as Flower's ClientApp: one for every method."""

import logging
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.flower._messages import MESSAGE_TYPE, answer, asked
from fedblade.flower._node import Node

app = ClientApp()


@app.query(MESSAGE_TYPE.partition(".")[2])  # type: ignore[untyped-decorator]
def reply(message: Message, context: Context) -> Message:
    """Do what the server asks with the data of this node; a failure is told in words, and without data."""
    try:
        kind, facts, tensors = asked(message)
        return answer(message, *node_of(context).answer(kind, facts, tensors))
    except FedbladeError as error:
        logging.getLogger(__name__).warning("request refused", exc_info=True)
        return answer(message, {"error": str(error)}, {})
    except Exception as error:  # what other code says may hold data, and Flower would send it
        logging.getLogger(__name__).exception("request failed")
        return answer(message, {"error": f"the node failed with a {type(error).__name__}. Its log says more."}, {})


def node_of(context: Context) -> Node:
    """The node that a SuperNode's configuration describes: `clients`, `data`, `state-dir` and `device`.

    Without `clients` the partition that Flower's simulation gives a node is its client.
    """
    given = context.node_config
    key = "clients" if "clients" in given else "partition-id"
    if key not in given:
        raise Misconfigured(
            "the node's configuration does not say for which clients it speaks. Start the SuperNode with "
            "--node-config 'clients=\"0\"', with its own numbers."
        )
    clients = str(given[key])
    try:
        numbers = tuple(int(client) for client in clients.split(","))
    except ValueError:
        raise Misconfigured(
            f"the node's configuration has {key} = '{clients}'; expected the numbers of its clients, such as 0 or 0,3."
        ) from None
    return Node(
        clients=numbers,
        data=str(given["data"]) if "data" in given else None,
        folder=Path(str(given.get("state-dir", Path.home() / ".fedblade" / f"node-{clients}"))),
        device=str(given.get("device", "auto")),
    )
