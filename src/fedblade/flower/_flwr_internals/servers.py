"""Flower's two servers, the SuperLink and the SuperNode, as processes of ours."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from flwr.supercore.logger import log
from flwr.supercore.run import RunNotRunningException

from fedblade.core.untrusted_text import REASON_CHARACTERS, printable
from fedblade.flower._flwr_internals.own_pieces import own_pieces_only
from fedblade.flower._flwr_internals.signatures import AHEAD_SECONDS
from fedblade.flower._flwr_internals.tasks import pull_sooner
from fedblade.flower._own_user import OwnUserOnly

_IDLE_SECONDS = 3.0
"""How long Flower's SuperNode waits between two questions for messages."""


def run_superlink(arguments: Sequence[str]) -> None:
    """Run a SuperLink in this process that answers only processes of this user."""
    from flwr.supercore.corestate.sql_corestate import SqlCoreState
    from flwr.superlink import main
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from flwr.superlink.routers.fleet import node_auth
    from flwr.superlink.servicer.fleet import fleet_handlers

    node_auth.SYSTEM_TIME_TOLERANCE = AHEAD_SECONDS
    fleet_handlers.pull_object = own_pieces_only(fleet_handlers.pull_object)
    SqlCoreState.store_object = taking_pieces_again(SqlCoreState.store_object)
    _run_guarded(main, flower_superlink, ["flower-superlink", *arguments])


def run_supernode(arguments: Sequence[str]) -> None:
    """Run a SuperNode in this process whose own port answers only processes of this user."""
    from flwr.supernode import main, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode
    from flwr.supernode.fleet_http_client import FleetHttpClient

    FleetHttpClient._unary_unary = saying_why_refused(FleetHttpClient._unary_unary)
    start_client_internal.time = _Pauses()
    pull_sooner(start_client_internal)
    start_client_internal.pull_objects = failing_when_the_run_ends(start_client_internal.pull_objects)
    _run_guarded(main, flower_supernode, ["flower-supernode", *arguments])


def taking_pieces_again(store: Callable[..., bool]) -> Callable[..., bool]:
    """Store a piece of a message; a piece that is stored already is stored.

    If the SuperLink ends, or a connection breaks, between storing a piece and the answer, the sender sends the piece
    again. Flower answers then that the piece was not stored, the sender gives the message up, and everybody waits for
    the other pieces for three minutes.
    """

    def store_or_find(state: Any, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        stored = store(state, run_id, session_id, object_id, object_content)
        return stored or bool(state.object_store.get(object_id))

    return store_or_find


def saying_why_refused(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a node to the coordinator. If the coordinator does not know the key, the log of the node says so.

    Flower ends the SuperNode then without a word, and with status 0.
    """

    def call_or_say(*given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                reason = printable(error.response.text, REASON_CHARACTERS)
                log(
                    logging.ERROR,
                    "The coordinator refuses this node: %s. Ask whether the node's key is admitted (fedblade flower "
                    "admit) or was revoked, and check this machine's clock.",
                    reason,
                )
            raise

    return call_or_say


def failing_when_the_run_ends(pull: Callable[..., Any]) -> Callable[..., Any]:
    """Fetch the pieces of a message; if the run ends meanwhile, this is a failure as every other.

    Flower has made a task for the message already. At a failure it ends the task, but if the run has ended it forgets
    to: the executor would wait for hours for pieces that never come, and answer nobody else.
    """

    def pull_or_fail(*given: Any, **named: Any) -> Any:
        try:
            return pull(*given, **named)
        except RunNotRunningException as error:
            raise ConnectionAbortedError("the run has ended") from error

    return pull_or_fail


class _Pauses:
    """Stands for the module `time` in Flower's loop of a SuperNode, which only sleeps.

    Flower asks for messages every three seconds. While messages come, it asks more often here.
    """

    def __init__(self) -> None:
        self._idle = _IDLE_SECONDS

    def sleep(self, seconds: float) -> None:
        """Sleep shorter than asked while there is work to do."""
        if seconds < _IDLE_SECONDS:  # the reply to a message is awaited
            self._idle = 0.1
            time.sleep(min(seconds, 0.05))
        else:
            time.sleep(self._idle)
            self._idle = min(self._idle * 1.3, _IDLE_SECONDS)


def _run_guarded(module: Any, run: Any, arguments: list[str]) -> None:
    make_app = module.create_app
    module.create_app = lambda *given, **named: OwnUserOnly(make_app(*given, **named))
    sys.argv = arguments
    run()
