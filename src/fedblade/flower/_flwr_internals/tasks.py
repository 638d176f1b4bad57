"""The tasks that Flower gives to processes of ours: how such a process gets a task, its input and its messages."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto, message_from_proto, run_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_and_inflate_object_from_tree, pull_objects
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid, http_grid
from flwr.supernode.runtime.run_clientapp import push_message

from fedblade.flower._flwr_internals.limited_pulls import within_limit

Client = RuntimeHttpClient
"""The client of a task."""
Kind = Literal["serverapp", "clientapp"]
"""The type of a task: a run's server or a node's answer to a message."""
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_PATIENCE: dict[str, Any] = {"initial_backoff": 0.1, "backoff_cap": 1.0, "max_tries_per_object": None}
"""Flower announces a message before its pieces have arrived, and asks for missing pieces after 1, 2, 4, … seconds. Most
come within a tenth of a second. The time after which Flower gives up is not changed."""
_ANNOUNCED_SECONDS = 10.0


class MessageGone(Exception):
    """A task has no message, because the SuperNode has given the message up."""


GIVEN_UP = (httpx.HTTPError, ObjectPullError, MessageGone)
"""What is raised if a node's task cannot be carried out, because the SuperNode has ended it or cannot be reached."""


@dataclass(frozen=True)
class Task:
    """A task that this process has acquired; the token is the right to carry it out."""

    run_id: int
    token: str


@dataclass(frozen=True)
class TaskInput:
    """The input of a task: the app's bytes as they arrived, the settings given with the run, and Flower's objects."""

    fab: bytes
    settings: dict[str, Any]
    run: Run
    context: Context


@dataclass(frozen=True)
class Runtime:
    """The Runtime API of a SuperLink or SuperNode of this machine; unencrypted without an authority."""

    address: str
    authority: Path | None = None

    def acquirer(self, secret: bytes) -> RuntimeHttpClient:
        """A client that may acquire tasks, because it knows the secret."""
        return self._client(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE]))

    def task_client(self, task: Task) -> RuntimeHttpClient:
        """A client for the calls of one task."""
        return self._client(RuntimeTokenHttpInterceptor(task.token))

    def grid(self, task: Task) -> HttpGrid:
        """The grid of a run's server."""
        pull_sooner(http_grid)
        http_grid.pull_objects = within_limit(http_grid.pull_objects)
        return HttpGrid(self.address, self.authority is None, self._trust, token=task.token)

    @property
    def _trust(self) -> bytes | None:
        return None if self.authority is None else self.authority.read_bytes()

    def _client(self, *interceptors: Any) -> RuntimeHttpClient:
        versions = RuntimeVersionHttpInterceptor(component_name="fedblade")
        insecure = self.authority is None
        return RuntimeHttpClient.from_server_address(self.address, insecure, self._trust, [versions, *interceptors])


def acquire(client: RuntimeHttpClient, kind: Kind) -> Task | None:
    """The oldest waiting task of a type; None if no task waits, or if nobody answers at the moment."""
    try:
        found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[f"flwr-{kind}"]))
    except httpx.TransportError:
        return None
    return Task(found.task.run_id, found.token) if found.HasField("task") and found.token else None


@contextlib.contextmanager
def alive(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell Flower every few seconds that a task goes on; without this Flower ends the task."""
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        yield
    finally:
        if heartbeat.is_running:
            heartbeat.stop()


def pull_input(client: RuntimeHttpClient) -> TaskInput:
    """The input of the client's task; the task counts as running from now on."""
    found = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, found.run.run_id
    TaskIdentity.node_id = found.context.node_id
    run = run_from_proto(found.run)
    return TaskInput(found.fab.content, dict(run.override_config), run, context_from_proto(found.context))


def pull_message(client: RuntimeHttpClient, given: TaskInput) -> Message:
    """The message that a node is to answer."""
    _, tree = _announced(client)
    pull, confirm = _fetch_and_confirm(client, given)
    message = pull_and_inflate_object_from_tree(tree, pull, confirm, return_type=Message, **_PATIENCE)
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def push_reply(client: RuntimeHttpClient, given: TaskInput, reply: Message) -> None:
    """Send the answer to the message of a task."""
    push_message(client, reply, given.context)


def refuse_message(client: RuntimeHttpClient, given: TaskInput, reason: str) -> None:
    """Answer the message of a task with an error, without opening it; Flower waits for an answer to each message.

    All pieces of the message are waited for. A message that is confirmed earlier is forgotten, so that the SuperNode
    cannot put the next piece down: it gives the message up, and never sends the answer.
    """
    announced, tree = _announced(client)
    pull, confirm = _fetch_and_confirm(client, given)
    pull_objects([piece.object_id for piece in iterate_object_tree(tree)], pull, **_PATIENCE)
    confirm(tree.object_id)
    push_reply(client, given, Message(Error(ErrorCode.INVALID_FAB, reason), reply_to=message_from_proto(announced)))


def _announced(client: RuntimeHttpClient) -> tuple[ProtoMessage, ObjectTree]:
    """The message of a task, and the tree of its pieces. The SuperNode makes the task a moment before the message."""
    deadline = time.monotonic() + _ANNOUNCED_SECONDS
    while not (found := client.PullMessages(PullAppMessagesRequest())).messages_list:
        if time.monotonic() > deadline:
            raise MessageGone("the SuperNode has a task without a message")
        time.sleep(_PATIENCE["initial_backoff"])
    return found.messages_list[0], found.message_object_trees[0]


def _fetch_and_confirm(
    client: RuntimeHttpClient, given: TaskInput
) -> tuple[Callable[[str], bytes], Callable[[str], None]]:
    """How a piece of a message is fetched, and how the message is confirmed."""
    node, run_id = Node(node_id=given.context.node_id), given.run.run_id
    return (
        make_pull_object_fn_protobuf(client.PullObject, node, run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run_id),
    )


def finish(client: RuntimeHttpClient, failure: str = "") -> None:
    """End a task, as completed or, with a reason, as failed."""
    status = SubStatus.FAILED if failure else SubStatus.COMPLETED
    client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=failure))


def grid_client(grid: HttpGrid) -> RuntimeHttpClient:
    """The client of a grid, for the calls of its task."""
    return grid._runtime_client


def finish_run(grid: HttpGrid, failure: str) -> None:
    """End the task of a run's server, if Flower can be reached and has not ended it."""
    grid._retry_invoker.max_tries = 1
    with contextlib.suppress(httpx.HTTPError):
        finish(grid_client(grid), failure)
    grid.close()


def pull_sooner(module: Any) -> None:
    """Have a module of Flower's ask for missing pieces of a message sooner and more often; see `_PATIENCE`."""
    module.pull_objects = functools.partial(pull_objects, **_PATIENCE)
