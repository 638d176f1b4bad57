"""The client half of a run as Flower's ClientApp: one for every method."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedblade.flower._answering import answer_request
from fedblade.flower._messages import MESSAGE_TYPE, read_request, reply_message
from fedblade.flower._node import Node
from fedblade.flower._node_errors import NodeError, error_facts
from fedblade.flower._node_setup import Facts

app = ClientApp()


@app.query(MESSAGE_TYPE.partition(".")[2])  # type: ignore[untyped-decorator]
def reply(message: Message, context: Context) -> Message:
    """Answer a message under Flower's simulation, where a node is what its configuration says."""
    return answer(message, lambda: node_of(context), lambda _: None)


def answer(message: Message, make_node: Callable[[], Node], check: Callable[[Facts], None]) -> Message:
    """Do what the server asks with the data of this node; the words of an error are for this node's log alone."""
    try:
        kind, facts, tensors = read_request(message)
        return reply_message(message, *answer_request(kind, facts, tensors, make_node, check))
    except Exception as error:
        return reply_message(message, error_facts(error), {})


def node_of(context: Context) -> Node:
    """The node that a SuperNode's configuration describes by `clients`, `data`, `state-dir` and `device`.

    Without `clients`, the partition number that Flower's simulation gives a node is its client.
    """
    settings = context.node_config
    key = "clients" if "clients" in settings else "partition-id"
    if key not in settings:
        raise NodeError(
            "clients",
            "the node's configuration does not say for which clients it speaks. Start the SuperNode with "
            "--node-config 'clients=\"0\"' and the numbers of its clients.",
        )
    clients = str(settings[key])
    try:
        numbers = tuple(int(client) for client in clients.split(","))
    except ValueError:
        raise NodeError(
            "clients",
            f"the node's configuration has {key} = '{clients}'; expected the numbers of its clients, such as 0 or 0,3.",
        ) from None
    return Node(
        clients=numbers,
        data=str(settings["data"]) if "data" in settings else None,
        folder=Path(str(settings.get("state-dir", Path.home() / ".fedblade" / f"node-{clients}"))),
        device=str(settings.get("device", "auto")),
    )
